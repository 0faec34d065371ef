// Two pinned plans side by side: what each takes, where the difference is, and which knobs make it.

import { button, h, scroller, table } from "./dom.js";
import { chance, change, days, gib, number, percent, seconds, whole } from "./format.js";
import { spent, strip } from "./charts/time.js";
import { LETTERS } from "./plans.js";
import { meaning } from "./terms.js";

/** What is shown below the title. `pinned` holds a plan, an error or null (not answered yet) for each pin;
    `gpus` are those of the question. */
export function comparison({ pinned, catalog, capacity, gpus, unpin }, width) {
  if (!pinned.length)
    return [h("p.says", "Pin two plans, in the table or in the design space, to see them side by side.")];
  const heads = h("div.heads", pinned.map((pin, i) => head(pin, i, gpus, unpin)));
  if (pinned.length < 2) return [h("div.versus", heads, h("p.says", "Pin a second plan to compare."))];
  const plans = pinned.map((pin) => pin?.plan);
  if (!plans.every(Boolean)) return [h("div.versus", heads)];
  const body = [strips(plans, catalog.components.time, width), differences(plans, catalog, capacity)];
  return [h("p.says", sentence(plans)), h("div.versus", heads, body)];
}

const badge = (i) => h(`span.badge.is-${LETTERS[i].toLowerCase()}`, LETTERS[i]);

function head(pin, i, gpus, unpin) {
  const name = `Unpin ${LETTERS[i]}`;
  const remove = button("unpin", () => unpin(i), { class: "link", "aria-label": name, "data-key": name });
  const label = h(pin?.error ? "p.error" : "p.mono", pin?.plan?.label ?? pin?.error ?? "…");
  const size = pin?.plan ? gpusOf(pin.plan.plan) : gpus;
  const other = size === gpus ? null : h("p.error", `on ${whole(size)} GPUs, not ${whole(gpus)}`);
  return h("div", h("p", badge(i), " ", remove), label, other);
}

const gpusOf = ({ tp, tp2, cp, pp, dp }) => tp * tp2 * cp * pp * dp;

function sentence([a, b]) {
  const ratio = b.step_seconds / a.step_seconds - 1;
  if (Math.abs(ratio) < 5e-5) return "Both take the same time.";
  const times = `${seconds(b.step_seconds, 4)} and ${seconds(a.step_seconds, 4)}`;
  const difference = `${percent(Math.abs(ratio))} ${ratio > 0 ? "longer" : "less"}`;
  return `B takes ${difference} than A (${times}).${overlap(a, b)}`;
}

function overlap(a, b) {
  if (!a.step_seconds_low) return "";
  return b.step_seconds_low > a.step_seconds_high || a.step_seconds_low > b.step_seconds_high
    ? " Their intervals do not overlap."
    : " Their intervals overlap: measured runs may well order them the other way.";
}

function strips(plans, components, width) {
  const most = Math.max(...plans.map((plan) => plan.step_seconds));
  const room = Math.max(width - 32, 100);
  const bar = (plan, i) => h("div.strip", badge(i), strip({ plan, components, most }, room));
  return h("div.strips.plot", plans.map(bar));
}

function differences([a, b], catalog, capacity) {
  const range = ({ step_seconds_low: low, step_seconds_high: high }) =>
    h("td.range", `${seconds(low)} to `, seconds(high));
  const both = (name, key, form) => [name, form(a[key]), form(b[key]), ""];
  const ratio = (...row) => both(...row).with(3, change(b[row[1]] / a[row[1]] - 1));
  const rows = [
    ratio("step", "step_seconds", (value) => seconds(value, 4)),
    a.step_seconds_low && ["90% interval", range(a), range(b), ""],
    ratio(`memory of ${gib(capacity)}`, "memory_bytes", gib),
    a.fits_probability !== undefined && both("fits", "fits_probability", chance),
    ratio("token/s of a GPU", "tokens_per_second_per_gpu", (value) => number(value, 4)),
    a.training_days !== null && ratio("the whole run", "training_days", days),
    ...parts(a, b, catalog.components.time),
    ...knobs(a, b, catalog),
  ].filter(Boolean);
  return scroller("Table of both plans", table("Plan A and plan B", ["", "A", "B", "B against A"], rows));
}

function parts(a, b, components) {
  const rows = [...spent(a, components), ...spent(b, components)];
  return [...new Map(rows.map(({ name, words }) => [name, words]))].map(([name, words]) => {
    const [first, second] = [a, b].map((plan) => plan.breakdown_seconds[name]);
    const difference = second - first;
    const isEqual = Math.abs(difference) < 5e-5 * a.step_seconds;
    const text = isEqual ? "0" : `${difference < 0 ? "−" : "+"}${seconds(Math.abs(difference))}`;
    const head = h("th", { scope: "row" }, h(`span.swatch.c-${name}`), words);
    return [head, seconds(first), seconds(second), text];
  });
}

function knobs(a, b, catalog) {
  const names = Object.keys(a.plan).filter((name) => String(a.plan[name]) !== String(b.plan[name]));
  const head = (name) => h("th.mono", { scope: "row", title: meaning(name, catalog) }, name);
  return names.map((name) => [head(name), knobText(a.plan[name]), knobText(b.plan[name]), ""]);
}

function knobText(value) {
  if (value === "") return "balanced";
  return typeof value === "number" ? number(value, 6) : String(value);
}
