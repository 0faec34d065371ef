// Two pinned plans side by side: what each takes, where the difference is, and which knobs make it.

import { h } from "./dom.js";
import { change, days, gib, number, percent, seconds, whole } from "./format.js";
import { spent, strip } from "./charts/time.js";
import { LETTERS } from "./plans.js";

/** What is shown below the title; `pinned` holds a plan, an error or null (not answered yet) for each pin, `gpus` are those asked for. */
export function comparison({ pinned, components, capacity, gpus, unpin }, width) {
  const heads = h(
    "div",
    { class: "heads" },
    pinned.map((one, i) => head(one, i, gpus, unpin)),
  );
  if (!pinned.length)
    return [h("p", { class: "says" }, "Pin two plans, in the table or in the design space, and they stand here side by side.")];
  if (pinned.length < 2) return [h("div", { class: "versus" }, heads, h("p", { class: "says" }, "Pin a second plan to compare."))];
  const plans = pinned.map((one) => one?.plan);
  if (!plans.every(Boolean)) return [h("div", { class: "versus" }, heads)];
  return [
    h("p", { class: "says" }, said(plans)),
    h("div", { class: "versus" }, heads, strips(plans, components, width), compared(plans, components, capacity)),
  ];
}

function head(one, i, gpus, unpin) {
  const letter = LETTERS[i];
  const about = one?.plan ? one.plan.label : one?.error ? one.error : "…";
  const size = one?.plan ? gpusOf(one.plan.plan) : gpus;
  return h(
    "div",
    {},
    h(
      "p",
      {},
      h("span", { class: `badge is-${letter.toLowerCase()}` }, letter),
      " ",
      h(
        "button",
        { type: "button", class: "link", "aria-label": `Unpin ${letter}`, "data-key": `unpin ${letter}`, onclick: () => unpin(i) },
        "unpin",
      ),
    ),
    h("p", { class: one?.error ? "error" : "mono" }, about),
    size === gpus ? null : h("p", { class: "error" }, `on ${whole(size)} GPUs, not ${whole(gpus)}`),
  );
}

const gpusOf = ({ tp, tp2, cp, pp, dp }) => tp * tp2 * cp * pp * dp;

function said([a, b]) {
  const ratio = b.step_seconds / a.step_seconds - 1;
  if (Math.abs(ratio) < 5e-5) return "Both take the same time.";
  const apart = a.step_seconds_low && (b.step_seconds_low > a.step_seconds_high || a.step_seconds_low > b.step_seconds_high);
  const sure = a.step_seconds_low
    ? apart
      ? " Their intervals lie apart."
      : " Their intervals overlap: measured runs may well order them the other way."
    : "";
  return `B takes ${percent(Math.abs(ratio))} ${ratio > 0 ? "longer" : "less"} than A (${seconds(b.step_seconds, 4)} and ${seconds(a.step_seconds, 4)}).${sure}`;
}

function strips(plans, components, width) {
  const most = Math.max(...plans.map((plan) => plan.step_seconds));
  const room = Math.max(width - 32, 100);
  return h(
    "div",
    { class: "strips plot" },
    plans.map((plan, i) =>
      h(
        "div",
        { class: "strip" },
        h("span", { class: `badge is-${LETTERS[i].toLowerCase()}` }, LETTERS[i]),
        strip({ plan, components: components.time, most }, room),
      ),
    ),
  );
}

function compared([a, b], components, capacity) {
  const rows = [
    row("step", a.step_seconds, b.step_seconds, (value) => seconds(value, 4)),
    a.step_seconds_low
      ? [
          h("th", { scope: "row" }, "90 % of measured runs"),
          ...[a, b].map((one) =>
            h("td", { class: "range" }, `${seconds(one.step_seconds_low)} to ${seconds(one.step_seconds_high)}`),
          ),
          h("td", {}),
        ]
      : null,
    row(`memory of ${gib(capacity)}`, a.memory_bytes, b.memory_bytes, gib),
    a.fits_probability === undefined
      ? null
      : [h("th", { scope: "row" }, "fits"), ...[a, b].map((one) => h("td", {}, percent(one.fits_probability))), h("td", {})],
    row("token/s of a GPU", a.tokens_per_second_per_gpu, b.tokens_per_second_per_gpu, (value) => number(value, 4)),
    a.training_days === null ? null : row("the whole run", a.training_days, b.training_days, days),
    ...parts(a, b, components.time),
    ...knobs(a, b),
  ].filter(Boolean);
  const heads = ["", "A", "B", "B against A"].map((text) => h("th", { scope: "col" }, text));
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      h("caption", { class: "hidden" }, "Plan A and plan B"),
      h("thead", {}, h("tr", {}, heads)),
      h(
        "tbody",
        {},
        rows.map((cells) => h("tr", {}, cells)),
      ),
    ),
  );
}

function row(name, a, b, form) {
  return [h("th", { scope: "row" }, name), h("td", {}, form(a)), h("td", {}, form(b)), h("td", {}, change(b / a - 1))];
}

function parts(a, b, components) {
  const names = new Map([...spent(a, components), ...spent(b, components)].map((one) => [one.name, one.words]));
  return [...names].map(([name, words]) => {
    const [first, second] = [a, b].map((one) => one.breakdown_seconds[name]);
    const less = second - first;
    const apart = Math.abs(less) < 5e-5 * a.step_seconds ? "0" : `${less < 0 ? "−" : "+"}${seconds(Math.abs(less))}`;
    return [
      h("th", { scope: "row" }, h("span", { class: `swatch c-${name}` }), words),
      h("td", {}, seconds(first)),
      h("td", {}, seconds(second)),
      h("td", {}, apart),
    ];
  });
}

function knobs(a, b) {
  const names = Object.keys(a.plan).filter((name) => String(a.plan[name]) !== String(b.plan[name]));
  return names.map((name) => [
    h("th", { scope: "row", class: "mono" }, name),
    h("td", {}, shown(a.plan[name])),
    h("td", {}, shown(b.plan[name])),
    h("td", {}),
  ]);
}

const shown = (value) => (value === "" ? "balanced" : typeof value === "number" ? number(value, 6) : String(value));
