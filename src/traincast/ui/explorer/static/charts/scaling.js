// Strong scaling: the best plan's throughput on more and fewer GPUs at the same global batch.

import { table } from "../dom.js";
import { legend } from "../figure.js";
import { large, number, percent, whole } from "../format.js";
import { logAxis, Plot, plotted } from "./plot.js";
import { logTicks } from "./ticks.js";

const HEIGHT = 300;
const MARGINS = { marginLeft: 62, marginRight: 24, marginTop: 26, marginBottom: 38 };
const LABEL_ROOM = 48; // pixels that a number of GPUs needs

const fits = (row) => row.step_seconds !== null;

export function says({ rows, gpus }) {
  const fitting = rows.filter(fits);
  const [first, last] = [fitting[0], fitting.at(-1)];
  const without = rows.filter((row) => !fits(row)).map((row) => whole(row.gpus));
  const missing = without.length ? ` Nothing fits on ${without.join(", ")}.` : "";
  const range = `From ${whole(first.gpus)} to ${whole(last.gpus)} GPUs`;
  const efficiency = `${percent(last.efficiency)} of each GPU's throughput remains`;
  return `${range}, ${efficiency}; now ${whole(gpus)}.${missing}`;
}

export function draw({ rows, gpus }, width) {
  const points = rows.filter(fits).map((row) => ({ ...row, ...throughputInterval(row) }));
  const [first, last] = [points[0], points.at(-1)];
  const perfect = [first, last].map((row) => ({
    gpus: row.gpus,
    rate: (first.tokens_per_second * row.gpus) / first.gpus,
  }));
  const low = Math.min(...points.map((row) => row.slow)) * 0.85;
  const high = Math.max(perfect[1].rate, ...points.map((row) => row.fast)) * 1.15;
  const every = Math.ceil((LABEL_ROOM * points.length) / (width - MARGINS.marginLeft - MARGINS.marginRight));
  const named = points.map((row) => row.gpus).filter((_, i) => i % every === 0);
  const place = { x: "gpus", y: "tokens_per_second" };
  const isNow = (row) => row.gpus === gpus;
  const withInterval = points.filter((row) => row.fast > row.slow);
  const below = { x: "gpus", y: "slow", dy: 15, dx: 10, textAnchor: "middle", fontSize: 11 }; // the interval
  const colour = (row) => (isNow(row) ? "var(--vermilion)" : "var(--blue)");
  const drawing = plotted({
    width,
    height: HEIGHT,
    ...MARGINS,
    x: { type: "log", domain: [first.gpus / 1.15, last.gpus * 1.15], axis: null },
    y: { type: "log", domain: [low, high], axis: null },
    r: { type: "identity" },
    marks: [
      logAxis("↑ token/s", logTicks(low, high), (value) => large(value)),
      Plot.axisX(named, { text: whole, tickSize: 0, label: "GPUs →", labelArrow: "none" }),
      Plot.line(perfect, { x: "gpus", y: "rate", className: "ideal" }),
      Plot.line(points, { ...place, className: "run" }),
      Plot.ruleX(withInterval, { x: "gpus", y1: "slow", y2: "fast", className: "whisker" }),
      Plot.dot(points, { ...place, r: (row) => (isNow(row) ? 5 : 3), fill: colour }),
      Plot.text(points.slice(1), { ...below, text: (row) => percent(row.efficiency) }),
    ],
  });
  const key = [
    ["dot c-compute", "best plan of each number of GPUs"],
    ...(points.some(isNow) ? [["dot c-recomputation", "now"]] : []),
    ["dashed", "perfect scaling"],
  ];
  return [drawing, legend(key)];
}

/** Throughput at the ends of the step time's interval. */
function throughputInterval(row) {
  const { step_seconds: time, step_seconds_low: low, step_seconds_high: high, tokens_per_second: rate } = row;
  return low ? { slow: (rate * time) / high, fast: (rate * time) / low } : { slow: rate, fast: rate };
}

export function numbers({ rows }) {
  const cells = rows.map((row) => [
    whole(row.gpus),
    number(row.step_seconds, 4),
    row.step_seconds_low ? `${number(row.step_seconds_low)}–${number(row.step_seconds_high)}` : "–",
    row.tokens_per_second === null ? "–" : whole(row.tokens_per_second),
    row.efficiency === null ? "–" : percent(row.efficiency),
    row.label ?? "nothing fits",
  ]);
  const head = ["GPUs", "Step [s]", "90% [s]", "token/s", "remaining", "Best plan"];
  return table("Strong scaling", head, cells, { class: "of-plans" });
}
