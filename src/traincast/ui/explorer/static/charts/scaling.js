// Strong scaling: the best plan's throughput on more and fewer GPUs at the same global batch, against perfect scaling.

import { table } from "../dom.js";
import { legend } from "../figure.js";
import { large, number, percent, whole } from "../format.js";
import { logAxis, plotted } from "./plot.js";
import { logTicks } from "./ticks.js";

const HEIGHT = 300;

export const says = ({ rows, gpus }) => {
  const fitting = rows.filter((row) => row.step_seconds !== null);
  if (!fitting.length) return "Nothing fits on any of these numbers of GPUs.";
  const [first, last] = [fitting[0], fitting[fitting.length - 1]];
  const missing = rows.length - fitting.length;
  const less = missing
    ? ` Nothing fits on ${rows
        .filter((row) => row.step_seconds === null)
        .map((row) => whole(row.gpus))
        .join(", ")}.`
    : "";
  return `From ${whole(first.gpus)} to ${whole(last.gpus)} GPUs, ${percent(last.efficiency)} of each GPU's throughput is kept; now ${whole(gpus)}.${less}`;
};

export function draw({ rows, gpus }, width) {
  const { Plot } = globalThis;
  const some = rows.filter((row) => row.step_seconds !== null).map((row) => ({ ...row, ...limits(row) }));
  if (!some.length) return [];
  const [first, last] = [some[0], some[some.length - 1]];
  const ideal = [first, last].map((row) => ({ gpus: row.gpus, rate: (first.tokens_per_second * row.gpus) / first.gpus }));
  const [low, high] = [
    Math.min(...some.map((row) => row.slow)) * 0.85,
    Math.max(ideal[1].rate, ...some.map((row) => row.fast)) * 1.15,
  ];
  const drawing = plotted({
    width,
    height: HEIGHT,
    marginLeft: 62,
    marginRight: 24,
    marginTop: 26,
    marginBottom: 38,
    x: { type: "log", domain: [first.gpus / 1.15, last.gpus * 1.15], axis: null },
    y: { type: "log", domain: [low, high], axis: null },
    marks: [
      logAxis("↑ token/s", logTicks(low, high), (value) => large(value)),
      Plot.axisX(named(some, width), { text: (value) => whole(value), tickSize: 0, label: "GPUs →", labelArrow: "none" }),
      Plot.line(ideal, { x: "gpus", y: "rate", className: "ideal" }),
      Plot.line(some, { x: "gpus", y: "tokens_per_second", className: "run" }),
      Plot.ruleX(
        some.filter((row) => row.fast > row.slow),
        { x: "gpus", y1: "slow", y2: "fast", className: "whisker" },
      ),
      Plot.dot(some, {
        x: "gpus",
        y: "tokens_per_second",
        r: (row) => (row.gpus === gpus ? 5 : 3),
        fill: (row) => (row.gpus === gpus ? "var(--vermilion)" : "var(--blue)"),
      }),
      Plot.text(some.slice(1), {
        x: "gpus",
        y: "tokens_per_second",
        text: (row) => percent(row.efficiency),
        dy: 20,
        dx: 6,
        textAnchor: "middle",
        fontSize: 11,
      }),
    ],
    r: { type: "identity" },
  });
  return [
    drawing,
    legend([
      ["dot c-compute", "best plan of each number of GPUs"],
      ["dot c-recomputation", "now"],
      ["c-bubble", "dashed: perfect scaling"],
    ]),
  ];
}

/** Numbers of GPUs for which there is room on the axis. */
const named = (rows, width) => rows.map((row) => row.gpus).filter((_, i) => i % Math.ceil((48 * rows.length) / (width - 86)) === 0);

/** Throughput between the limits of the step's time. */
function limits({ step_seconds: middle, step_seconds_low: low, step_seconds_high: high, tokens_per_second: rate }) {
  return low ? { slow: (rate * middle) / high, fast: (rate * middle) / low } : { slow: rate, fast: rate };
}

export function numbers({ rows }) {
  const told = rows.map((row) => [
    whole(row.gpus),
    number(row.step_seconds, 4),
    row.step_seconds_low ? `${number(row.step_seconds_low)}–${number(row.step_seconds_high)}` : "–",
    row.tokens_per_second === null ? "–" : whole(row.tokens_per_second),
    row.efficiency === null ? "–" : percent(row.efficiency),
    row.label ?? "nothing fits",
  ]);
  return table("Strong scaling", ["GPUs", "Step [s]", "90 % [s]", "token/s", "kept", "Best plan"], told);
}
