// The ranked plans as a table, each row with a button that pins it.

import { samePlan } from "./address.js";
import { button, h, table } from "./dom.js";
import { chance, fixed, gib, GIB, prefix, whole } from "./format.js";
import { glossary, head } from "./terms.js";

export const LETTERS = ["A", "B"];

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
export function ranking({ plans, columns: knobNames }, catalog, pins, toggle) {
  const hasErrors = plans[0].step_seconds_low !== undefined;
  const [size, letter] = prefix(plans[0].step_seconds);
  const interval = (plan) =>
    h("td.range", `${fixed(plan.step_seconds_low / size)}–${fixed(plan.step_seconds_high / size)}`);
  const mfu = (plan) => {
    const [share] = Object.values(plan.metrics.mfu ?? {});
    return share === undefined ? "–" : `${fixed(100 * share)}%`;
  };
  const figures = [
    ["#", (plan, i) => String(i + 1)],
    ["pin", (plan, i) => pinButton(plan.knobs, `plan ${i + 1}, ${plan.label}`, pins, toggle)],
    [`step [${letter}s]`, (plan, i) => h(i ? "td" : "td.best", fixed(plan.step_seconds / size, 4))],
    hasErrors ? [`90% [${letter}s]`, interval] : null,
    ["memory [GiB]", (plan) => fixed(plan.memory_bytes / GIB)],
    hasErrors ? ["fits", (plan) => chance(plan.fits_probability)] : null,
    ["MFU", mfu],
  ].filter(Boolean);
  const knobs = knobNames.map((name, i) => [name, ({ cells }) => cells[i], i ? "knob" : "knob.text"]);
  const columns = [...figures, ...knobs];
  const cells = (plan, i) =>
    columns.map(([, cell, kind]) => (kind ? h(`td.${kind}`, cell(plan)) : cell(plan, i)));
  const folded = (plan) => [h("td.knobs", { colspan: figures.length }, knobs.map(named(plan)))];
  const named = (plan) => ([name, cell]) => (cell(plan) ? [h("span", `${name} ${cell(plan)}`), " "] : []);
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

export function says({ feasible, candidates, system, plans }) {
  const fit = `${whole(feasible)} of ${whole(candidates)} candidates fit in ${gib(system.capacity_bytes)}`;
  const listed = `the first is recommended, the other ${plans.length - 1} are the best that differ from it`;
  const alike = "In brackets: other values of this knob alone, within 2% of the line's time";
  return `${fit}; ${listed}. ${alike}. Pin two to compare them.`;
}
