// The ranked plans as a table, each row with a button that pins it.

import { samePlan } from "./address.js";
import { button, h, table } from "./dom.js";
import { fixed, gib, GIB, percent, prefix, whole } from "./format.js";
import { glossary, head } from "./terms.js";

export const LETTERS = ["A", "B"];
const ALWAYS = ["tp", "pp", "dp"];
const KINDS = ["tp_kind", "cp_kind"]; // said by the strategy

function pinButton(knobs, name, pins, toggle) {
  const place = pins.findIndex((pin) => samePlan(pin, knobs));
  const letter = LETTERS[place];
  return button(letter ?? "pin", () => toggle(knobs), {
    class: `pin${letter ? ` is-${letter.toLowerCase()}` : ""}`,
    "aria-pressed": String(place >= 0),
    "aria-label": `Pin ${name}${letter ? `, pinned as ${letter}` : ""}`,
    "data-key": `pin ${name}`,
  });
}

/** The table of an answer's plans, and what its columns mean. */
export function ranking({ plans }, catalog, pins, toggle) {
  const hasErrors = plans[0].step_seconds_low !== undefined;
  const [size, letter] = prefix(plans[0].step_seconds);
  const interval = (plan) =>
    h("td.range", `${fixed(plan.step_seconds_low / size)}–${fixed(plan.step_seconds_high / size)}`);
  const mfu = (plan) => {
    const [share] = Object.values(plan.metrics.mfu ?? {});
    return share === undefined ? "–" : `${fixed(100 * share)}\u00a0%`;
  };
  const figures = [
    ["#", (plan, i) => String(i + 1)],
    ["pin", (plan, i) => pinButton(plan.knobs, `plan ${i + 1}, ${plan.label}`, pins, toggle)],
    [`step [${letter}s]`, (plan, i) => h(i ? "td" : "td.best", fixed(plan.step_seconds / size, 4))],
    hasErrors ? [`90 % [${letter}s]`, interval] : null,
    ["memory [GiB]", (plan) => fixed(plan.memory_bytes / GIB)],
    hasErrors ? ["fits", (plan) => percent(plan.fits_probability)] : null,
    ["MFU", mfu],
  ].filter(Boolean);
  const knobs = [["strategy", (plan) => plan.strategy, "knob.text"], ...knobColumns(plans, catalog)];
  const columns = [...figures, ...knobs];
  const cells = (plan, i) =>
    columns.map(([, cell, kind]) => (kind ? h(`td.${kind}`, cell(plan)) : cell(plan, i)));
  const folded = (plan) => [h("td.knobs", { colspan: figures.length }, knobs.map(named(plan)))];
  const named = (plan) => ([name, cell]) => [h("span", `${name} ${cell(plan)}`), " "];
  const names = columns.map(([name]) => name);
  const heads = columns.map(([name, , kind]) => head(name, catalog, kind ? `th.${kind}` : "th"));
  const rows = plans.flatMap((plan, i) => [cells(plan, i), folded(plan)]);
  const ranked = table("The recommended plan and the best others", heads, rows);
  return { ranked, terms: glossary(names, catalog) };
}

/** Put the knobs of a plan on a line of their own where their columns would not fit in the box. */
export function fold(box) {
  box.classList.remove("folded");
  box.classList.toggle("folded", box.scrollWidth > box.clientWidth);
}

/** Knobs in which the plans differ: the name of a column, its cell, and its class. */
function knobColumns(plans, catalog) {
  const varied = plans.flatMap(({ others }) => Object.keys(others));
  const used = new Set([...varied, ...plans.flatMap((plan) => Object.keys(plan.knobs))]);
  const shown = [...ALWAYS, ...varied];
  const differs = (name) => shown.includes(name) || new Set(plans.map(({ plan }) => plan[name])).size > 1;
  const columns = catalog.locks
    .map(({ name }) => name)
    .filter((name) => used.has(name) && !KINDS.includes(name) && !name.startsWith("fast_") && differs(name))
    .map((name) => [name, (plan) => knob(plan, name), "knob"]);
  const isPlaced = [...used].some((name) => name.startsWith("fast_"));
  return isPlaced ? [...columns, ["in a domain", fast, "knob"]] : columns;
}

/** The value of a knob, and in brackets what it is in plans otherwise alike. */
function knob({ plan, others }, name) {
  const values = others[name] ?? [];
  const range = name === "recompute" ? values.join(", ") : [...new Set([values[0], values.at(-1)])].join("–");
  return values.length ? `${plan[name]} (${range})` : String(plan[name]);
}

/** How many members of each group share a fast domain. */
function fast(plan) {
  const groups = Object.entries(plan.plan).filter(([name, value]) => name.startsWith("fast_") && value > 1);
  return groups.map(([name, value]) => `${name.slice(5)} ${value}`).join(" · ") || "–";
}

export function says({ feasible, candidates, system, plans }) {
  const fit = `${whole(feasible)} of ${whole(candidates)} candidates fit in ${gib(system.capacity_bytes)}`;
  const listed = `the first is recommended, the other ${plans.length - 1} are the best that differ from it`;
  const alike = "In brackets: values of plans otherwise alike, within 2\u00a0% of the line's time";
  return `${fit}; ${listed}. ${alike}. Pin two to compare them.`;
}
