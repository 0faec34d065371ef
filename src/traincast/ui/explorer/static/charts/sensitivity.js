// By how much the best plan's step would change if a figure of the hardware were 10 % better.

import { s, table } from "../dom.js";
import { change } from "../format.js";

const ROW = 28;

const sorted = (explanation) =>
  Object.entries(explanation.sensitivity_10_percent_better).sort((a, b) => a[1] - b[1]);

export function says({ explanation }) {
  const [first] = sorted(explanation);
  if (!first) return "Nothing fits.";
  const [name, share] = first;
  return `Each figure 10 % better, the plan as it is: ${name} changes most, by ${change(share)} of the step.`;
}

export function draw({ explanation }, width) {
  const rows = sorted(explanation);
  const left = Math.min(210, width * 0.48);
  const scale = (width - left - 60) / Math.max(0.1, ...rows.map(([, share]) => Math.abs(share)));
  const bars = rows.map(([name, share], i) => {
    const [y, length] = [i * ROW, scale * Math.abs(share)];
    const box = { x: left, y: y + 6, width: Math.max(length, 1), height: 16 };
    return s(
      "g",
      s("text", { x: left - 10, y: y + 18, "text-anchor": "end" }, name),
      s(share <= 0 ? "rect.better" : "rect.over", box),
      s("text.quiet", { x: left + length + 8, y: y + 18 }, change(share)),
    );
  });
  const limit = left + scale * 0.1;
  const [y1, y2] = [2, rows.length * ROW + 2];
  return s(
    "svg",
    { width, height: y2 + 20 },
    s("line.rule", { x1: left, x2: left, y1, y2 }),
    s("line.guide", { x1: limit, x2: limit, y1, y2 }),
    s("text.quiet.small", { x: limit, y: y2 + 16, "text-anchor": "middle" }, "10 %"),
    bars,
  );
}

export function numbers({ explanation }) {
  const rows = sorted(explanation).map(([name, share]) => [name, change(share, 3)]);
  return table("Change of the step if a figure is 10 % better", ["Figure", "Change"], rows);
}
