// The ranked plans as a table, each row with a button that pins it.

import { samePlan } from "./address.js";
import { h } from "./dom.js";
import { fixed, gib, percent, prefix, whole } from "./format.js";

export const LETTERS = ["A", "B"];
const ALWAYS = ["tp", "pp", "dp"];

/** The button that pins a plan, or lets it go. */
export function pinButton(knobs, name, pins, toggle) {
  const place = pins.findIndex((pin) => samePlan(pin, knobs));
  const letter = LETTERS[place];
  const attributes = {
    type: "button",
    class: `pin${letter ? ` is-${letter.toLowerCase()}` : ""}`,
    "aria-pressed": String(place >= 0),
    "aria-label": `Pin ${name}${letter ? `, pinned as ${letter}` : ""}`,
  };
  return h("button", { ...attributes, "data-key": `pin ${name}`, onclick: () => toggle(knobs) }, letter ?? "pin");
}

/** The table of an answer's plans. */
export function ranking(answer, catalog, pins, toggle) {
  const plans = answer.plans;
  const knobs = columns(plans, catalog);
  const known = plans[0].step_seconds_low !== undefined;
  const [size, letter] = prefix(plans[0].step_seconds);
  const head = [
    "#",
    "pin",
    `step [${letter}s]`,
    ...(known ? ["90 % [" + letter + "s]"] : []),
    "memory [GiB]",
    ...(known ? ["fits"] : []),
    "MFU",
    "strategy",
    ...knobs.map(([name]) => name),
  ];
  const rows = plans.map((plan, i) => {
    const mfu = Object.values(plan.metrics.mfu ?? {})[0];
    const interval = known
      ? [h("td", { class: "range" }, `${fixed(plan.step_seconds_low / size)}–${fixed(plan.step_seconds_high / size)}`)]
      : [];
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, String(i + 1)),
      h("td", {}, pinButton(plan.knobs, `plan ${i + 1}, ${plan.label}`, pins, toggle)),
      h("td", { class: i ? null : "best" }, fixed(plan.step_seconds / size, 4)),
      interval,
      h("td", {}, fixed(plan.memory_bytes / 2 ** 30)),
      known ? [h("td", {}, percent(plan.fits_probability))] : [],
      h("td", {}, mfu === undefined ? "–" : `${fixed(100 * mfu)}\u00a0%`),
      h("td", { class: "text" }, plan.strategy),
      knobs.map(([, cell]) => h("td", {}, cell(plan))),
    );
  });
  return h(
    "table",
    {},
    h("caption", { class: "hidden" }, "The best plans, best first"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        head.map((text) => h("th", { scope: "col", class: text === "strategy" ? "text" : null }, text)),
      ),
    ),
    h("tbody", {}, rows),
  );
}

/** Knobs in which the plans differ: the name of a column, and what stands in it. */
function columns(plans, catalog) {
  const used = new Set(plans.flatMap((plan) => Object.keys(plan.knobs)));
  const order = catalog.locks.map((lock) => lock.name).filter((name) => used.has(name) && !["tp_kind", "cp_kind"].includes(name));
  const placed = [...used].some((name) => name.startsWith("fast_"));
  const differs = (name) => ALWAYS.includes(name) || new Set(plans.map((plan) => plan.plan[name])).size > 1;
  const plain = order
    .filter((name) => !name.startsWith("fast_") && differs(name))
    .map((name) => [name, (plan) => String(plan.plan[name])]);
  return placed ? [...plain, ["in a domain", fast]] : plain;
}

/** How many members of each group share a fast domain. */
function fast(plan) {
  const groups = Object.entries(plan.plan).filter(([name, value]) => name.startsWith("fast_") && value > 1);
  return groups.map(([name, value]) => `${name.slice(5)} ${value}`).join(" · ") || "–";
}

export const says = (answer) =>
  `${whole(answer.feasible)} of ${whole(answer.candidates)} candidates fit in ${gib(answer.system.capacity_bytes)}; these are the best ${answer.plans.length}. Pin two to compare them.`;
