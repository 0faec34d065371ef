// By how much the best plan's step would change if a figure of the hardware were 10 % better.

import { table } from "../dom.js";
import { change } from "../format.js";
import { Plot, plotted } from "./plot.js";

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
  const place = { x: ([, share]) => Math.abs(share), y: ([name]) => name };
  const fill = ([, share]) => (share <= 0 ? "var(--blue)" : "var(--bad)");
  const most = Math.max(0.1, ...rows.map(([, share]) => Math.abs(share)));
  return plotted({
    width,
    height: rows.length * ROW + 24,
    marginLeft: Math.min(210, width * 0.48),
    marginRight: 60,
    marginTop: 2,
    x: { domain: [0, most], axis: null },
    y: { domain: rows.map(([name]) => name), label: null, padding: 0.4, tickSize: 0 },
    marks: [
      Plot.barX(rows, { ...place, fill }),
      Plot.text(rows, { ...place, text: ([, share]) => change(share), dx: 8, textAnchor: "start" }),
      Plot.ruleX([0], { className: "rule" }),
      Plot.ruleX([0.1], { className: "guide" }),
      Plot.axisX([0.1], { text: ["10 %"], tickSize: 0, label: null }),
    ],
  });
}

export function numbers({ explanation }) {
  const rows = sorted(explanation).map(([name, share]) => [name, change(share, 3)]);
  return table("Change of the step if a figure is 10 % better", ["Figure", "Change"], rows);
}
