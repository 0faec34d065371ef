// By how much the best plan's step would change if a figure of the hardware were 10 % better.

import { s, table } from "../dom.js";
import { change } from "../format.js";

const ROW = 28;

const sorted = (explanation) => Object.entries(explanation.sensitivity_10_percent_better).sort((a, b) => a[1] - b[1]);

export const says = ({ explanation }) => {
  const [first] = sorted(explanation);
  return first
    ? `Each figure 10 % better, the plan as it is: ${first[0]} changes most, by ${change(first[1])} of the step.`
    : "Nothing fits.";
};

export function draw({ explanation }, width) {
  const rows = sorted(explanation);
  const left = Math.min(210, width * 0.48);
  const most = Math.max(0.1, ...rows.map(([, value]) => Math.abs(value)));
  const bars = rows.map(([name, value], i) => {
    const length = ((width - left - 60) * Math.abs(value)) / most;
    return s(
      "g",
      {},
      s("text", { x: left - 10, y: i * ROW + 18, "text-anchor": "end" }, name),
      s("rect", { class: value <= 0 ? "better" : "over", x: left, y: i * ROW + 6, width: Math.max(length, 1), height: 16 }),
      s("text", { class: "quiet", x: left + length + 8, y: i * ROW + 18 }, change(value)),
    );
  });
  const limit = left + ((width - left - 60) * 0.1) / most;
  return s(
    "svg",
    { width, height: rows.length * ROW + 22 },
    s("line", { class: "rule", x1: left, x2: left, y1: 2, y2: rows.length * ROW + 2 }),
    s("line", { class: "guide", x1: limit, x2: limit, y1: 2, y2: rows.length * ROW + 2 }),
    s("text", { class: "quiet small", x: limit, y: rows.length * ROW + 18, "text-anchor": "middle" }, "10 %"),
    bars,
  );
}

export function numbers({ explanation }) {
  return table(
    "Change of the step if a figure is 10 % better",
    ["Figure", "Change"],
    sorted(explanation).map(([name, value]) => [name, change(value, 3)]),
  );
}
