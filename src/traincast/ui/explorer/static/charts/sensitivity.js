// By how much the best plan's step would change if a figure of the hardware were 10% better: less to the left.

import { table } from "../dom.js";
import { change } from "../format.js";
import { Plot, plotted } from "./plot.js";

const ROW = 28;
const LABEL = 60; // pixels of a number beside a bar

const sorted = (explanation) =>
  Object.entries(explanation.sensitivity_10_percent_better).sort((a, b) => a[1] - b[1]);

export function says({ explanation }) {
  const [first] = sorted(explanation);
  if (!first) return "Nothing fits.";
  const [name, share] = first;
  return `Each figure 10% better, the plan as it is: ${name} changes most, by ${change(share)} of the step.`;
}

export function draw({ explanation }, width) {
  const rows = sorted(explanation);
  const place = { x: ([, share]) => share, y: ([name]) => name };
  const number = { ...place, text: ([, share]) => change(share) };
  const isLess = ([, share]) => share <= 0;
  const [less, more] = [rows.filter(isLess), rows.filter((row) => !isLess(row))];
  const shares = rows.map(([, share]) => share);
  return plotted({
    width,
    height: rows.length * ROW + 26,
    marginLeft: Math.min(150, width * 0.4) + LABEL,
    marginRight: more.length ? LABEL : 12,
    marginTop: 2,
    marginBottom: 24,
    x: { domain: [Math.min(-0.01, ...shares), Math.max(0, ...shares)], axis: null },
    y: { domain: rows.map(([name]) => name), axis: null, padding: 0.4 },
    marks: [
      Plot.axisY({ tickSize: 0, label: null, tickPadding: LABEL }),
      Plot.barX(less, { ...place, fill: "var(--blue)" }),
      Plot.barX(more, { ...place, fill: "var(--bad)" }),
      Plot.text(less, { ...number, dx: -8, textAnchor: "end" }),
      Plot.text(more, { ...number, dx: 8, textAnchor: "start" }),
      Plot.ruleX([0], { className: "rule" }),
      Plot.axisX([0], { text: ["← shorter step"], textAnchor: more.length ? "middle" : "end", tickSize: 0, label: null }),
    ],
  });
}

export function numbers({ explanation }) {
  const rows = sorted(explanation).map(([name, share]) => [name, change(share, 3)]);
  return table("Change of the step if a figure is 10% better", ["Figure", "Change"], rows);
}
