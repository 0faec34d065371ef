// Two pinned plans side by side: what each takes, where the difference is, and which knobs make it.

import { button, h, scroller, table } from "./dom.js";
import { number, seconds, whole } from "./format.js";
import { spent, strip } from "./charts/time.js";
import { LETTERS } from "./plans.js";
import { meaning } from "./terms.js";

/** What is shown below the title. `pinned` holds a plan, an error or null (not answered yet) for each pin,
    `compared` the table of both as the command line has it; `gpus` are those of the question. */
export function comparison({ pinned, compared, catalog, gpus, unpin }, width) {
  if (!pinned.length)
    return [h("p.says", "Pin two plans, in the table or in the design space, to see them side by side.")];
  const heads = h("div.heads", pinned.map((pin, i) => head(pin, i, gpus, unpin)));
  if (pinned.length < 2) return [h("div.versus", heads, h("p.says", "Pin a second plan to compare."))];
  const plans = pinned.map((pin) => pin?.plan);
  if (!plans.every(Boolean) || !compared) return [h("div.versus", heads)];
  const body = [strips(plans, catalog.components.time, width), differences(plans, compared, catalog)];
  return [h("p.says", compared.sentences.join(" ")), h("div.versus", heads, body)];
}

const NAMES = { "90%": "90% interval of the step", GiB: "memory / there is [GiB]", "tok/s/GPU": "token/s of a GPU" };

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

function strips(plans, components, width) {
  const most = Math.max(...plans.map((plan) => plan.step_seconds));
  const room = Math.max(width - 32, 100);
  const bar = (plan, i) => h("div.strip", badge(i), strip({ plan, components, most }, room));
  return h("div.strips.plot", plans.map(bar));
}

function differences([a, b], { columns, rows }, catalog) {
  const figures = columns.map((name, i) => [NAMES[name] ?? name, rows[0][i], rows[1][i], ""]);
  const body = [...figures, ...parts(a, b, catalog.components.time), ...knobs(a, b, catalog)];
  return scroller("Table of both plans", table("Plan A and plan B", ["", "A", "B", "B against A"], body));
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
