// Where the time of a step goes: components one after the other, and the step with its interval.

import { s, table } from "../dom.js";
import { number, percent, seconds } from "../format.js";

const ROW = 24;
const BAR = 14;
const STRIP = 26;
const LETTER = 7; // pixels of a letter of a label, in the widest of the fonts
const MIN_SHARE = 1e-4; // of the step; smaller components are left out

/** The components of a plan that take time, in the order they are drawn: `{name, meaning, words, value}`. */
export const spent = (plan, components) =>
  components
    .map(({ name, label, meaning }) => {
      const words = label ?? name.replaceAll("_", " ");
      return { name, words, meaning, value: plan.breakdown_seconds[name] ?? 0 };
    })
    .filter(({ value }) => value > plan.step_seconds * MIN_SHARE);

export function says({ plan, components }) {
  const [first, second] = spent(plan, components).sort((a, b) => b.value - a.value);
  const share = ({ value, words }) => `${percent(value / plan.step_seconds)} ${words}`;
  return `${seconds(plan.step_seconds, 4)}: ${share(first)}${second ? `, then ${share(second)}` : ""}.`;
}

export function draw({ plan, components }, width) {
  const rows = spent(plan, components);
  const left = 10 + LETTER * Math.max(...rows.map(({ words }) => words.length));
  const most = Math.max(plan.step_seconds, plan.step_seconds_high ?? 0);
  const x = (value) => left + ((width - left - 52) * value) / most;
  let begin = 0;
  const bars = rows.map(({ name, words, value, meaning }, i) => {
    const [from, to] = [x(begin), x(begin + value)];
    begin += value;
    const y = i * ROW + (ROW - BAR) / 2;
    const title = s("title", `${meaning}: ${seconds(value)}`);
    const guide = s("line.guide", { x1: to, x2: to, y1: y, y2: y + ROW });
    const label = s("text", { x: left - 10, y: i * ROW + 16, "text-anchor": "end" }, words);
    const mark = s("rect.mark", { x: from, y, width: Math.max(to - from, 1.5), height: BAR });
    const share = s("text.quiet.small", { x: to + 6, y: i * ROW + 16 }, percent(value / plan.step_seconds));
    return s(`g.c-${name}`, title, guide, label, mark, share);
  });
  const bottom = rows.length * ROW + 6;
  return s("svg", { width, height: bottom + ROW }, bars, total(plan, bottom, x));
}

function total({ step_seconds: time, step_seconds_low: low, step_seconds_high: high }, top, x) {
  const [left, right, middle] = [x(0), x(time), top + ROW / 2 - 2];
  const bounds = high && [low, high].map((end) => `M${x(end)},${middle - 5}v10`).join("");
  const bold = { y: top + 15, "font-weight": 650 };
  return s(
    "g",
    s("line.rule", { x1: left, x2: right, y1: top - 4, y2: top - 4 }),
    s("text", { x: left - 10, "text-anchor": "end", ...bold }, "step"),
    s("rect.whole", { x: left, y: middle - BAR / 2, width: right - left, height: BAR }),
    high ? s("path.whisker", { d: `M${x(low)},${middle}H${x(high)}${bounds}` }) : null,
    s("text", { x: Math.max(x(high ?? 0), right) + 6, ...bold }, seconds(time)),
  );
}

export function numbers({ plan, components }) {
  const total = plan.step_seconds;
  const row = ({ meaning, value }) => [meaning, number(value, 4), percent(value / total)];
  const rows = spent(plan, components).map(row);
  const head = ["Component", "Seconds", "Share"];
  return table("Time of a step by component", head, [...rows, ["step", number(total, 4), "100%"]]);
}

/** The time of a plan as one stacked bar, for a comparison on one scale. */
export function strip({ plan, components, most }, width) {
  const rows = spent(plan, components);
  let begin = 0;
  const parts = rows.map(({ name, words, value }) => {
    const x = (begin / most) * width;
    begin += value;
    const box = { x, y: 0, width: Math.max((value / most) * width, 0.5), height: STRIP };
    return s(`rect.part.c-${name}`, box, s("title", `${words}: ${seconds(value)}`));
  });
  const label = `Time: ${rows.map(({ words, value }) => `${words} ${seconds(value)}`).join(", ")}`;
  const frame = { width, height: STRIP, viewBox: `0 0 ${width} ${STRIP}` };
  return s("svg", { ...frame, role: "img", "aria-label": label }, parts);
}
