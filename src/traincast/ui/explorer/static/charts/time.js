// Where the time of a step goes: components one after the other, and the whole with the interval in which measured steps lie.

import { s, table } from "../dom.js";
import { number, percent, seconds } from "../format.js";

const ROW = 24;
const BAR = 14;

/** The components of a plan that take any time, in the order they are drawn: `{name, meaning, words, value}`. */
export function spent(plan, components) {
  return components
    .map(({ name, label, meaning }) => ({
      name,
      words: label ?? name.replaceAll("_", " "),
      meaning,
      value: plan.breakdown_seconds[name] ?? 0,
    }))
    .filter(({ value }) => value > plan.step_seconds * 1e-4);
}

export const says = ({ plan, components }) => {
  const [first, second] = spent(plan, components).sort((a, b) => b.value - a.value);
  const share = (one) => `${percent(one.value / plan.step_seconds)} ${one.words}`;
  return `${seconds(plan.step_seconds, 4)}: ${share(first)}${second ? `, then ${share(second)}` : ""}.`;
};

export function draw({ plan, components, most = null }, width) {
  const rows = spent(plan, components);
  const [low, high] = [plan.step_seconds_low, plan.step_seconds_high];
  const left = Math.min(190, width * 0.46);
  const whole = most ?? Math.max(plan.step_seconds, high ?? 0);
  const scale = (value) => left + ((width - left - 52) * value) / whole;
  const height = (rows.length + 1) * ROW + 6;
  let begin = 0;
  const bars = rows.map(({ name, words, value, meaning }, i) => {
    const [from, to] = [scale(begin), scale(begin + value)];
    const y = i * ROW + (ROW - BAR) / 2;
    const joint = s("line", { class: "guide", x1: to, x2: to, y1: y, y2: y + ROW });
    begin += value;
    return s(
      "g",
      { class: `c-${name}` },
      joint,
      s("text", { x: left - 10, y: i * ROW + 16, "text-anchor": "end" }, words),
      s(
        "rect",
        { class: "mark", x: from, y, width: Math.max(to - from, 1.5), height: BAR },
        s("title", {}, `${meaning}: ${seconds(value)}`),
      ),
      s("text", { class: "quiet small", x: to + 6, y: i * ROW + 16 }, percent(value / plan.step_seconds)),
    );
  });
  return s("svg", { width, height }, bars, total(plan, rows.length * ROW + 6, left, scale, low, high));
}

function total(plan, top, left, scale, low, high) {
  const middle = top + ROW / 2 - 2;
  const whisker = high
    ? s("path", {
        class: "whisker",
        d: `M${scale(low)},${middle}H${scale(high)}M${scale(low)},${middle - 5}v10M${scale(high)},${middle - 5}v10`,
      })
    : null;
  return s(
    "g",
    {},
    s("line", { class: "rule", x1: left, x2: scale(plan.step_seconds), y1: top - 4, y2: top - 4 }),
    s("text", { x: left - 10, y: top + 15, "text-anchor": "end", "font-weight": 650 }, "step"),
    s("rect", { class: "whole", x: left, y: middle - BAR / 2, width: scale(plan.step_seconds) - left, height: BAR }),
    whisker,
    s(
      "text",
      { x: Math.max(scale(high ?? 0), scale(plan.step_seconds)) + 6, y: top + 15, "font-weight": 650 },
      seconds(plan.step_seconds),
    ),
  );
}

export function numbers({ plan, components }) {
  const rows = spent(plan, components).map(({ meaning, value }) => [meaning, number(value, 4), percent(value / plan.step_seconds)]);
  return table(
    "Time of a step by component",
    ["Component", "Seconds", "Share"],
    [...rows, ["step", number(plan.step_seconds, 4), "100 %"]],
  );
}

/** The time of a plan as one stacked bar, for a comparison on one scale. */
export function strip({ plan, components, most }, width) {
  const rows = spent(plan, components);
  let begin = 0;
  const parts = rows.map(({ name, words, value }) => {
    const x = (begin / most) * width;
    begin += value;
    return s(
      "rect",
      { class: `part c-${name}`, x, y: 0, width: Math.max((value / most) * width, 0.5), height: 26 },
      s("title", {}, `${words}: ${seconds(value)}`),
    );
  });
  return s(
    "svg",
    {
      width,
      height: 26,
      role: "img",
      "aria-label": `Time: ${rows.map(({ words, value }) => `${words} ${seconds(value)}`).join(", ")}`,
    },
    parts,
  );
}
