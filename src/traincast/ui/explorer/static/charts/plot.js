// Observable Plot, loaded behind the first drawing, and without its <style> elements: the page forbids those.

import "../vendor/d3.min.js";
import "../vendor/plot.min.js";

export const { Plot } = globalThis;

/** A drawing of marks. */
export function plotted(options) {
  const drawing = Plot.plot({ ...options, style: { background: "none", color: "inherit" } });
  drawing.querySelectorAll("style").forEach((element) => element.remove());
  return drawing;
}

/** A logarithmic axis with a line and a number at every tick; Plot's own leaves some numbers out. */
export const logAxis = (label, ticks, text) => [
  Plot.gridY(ticks),
  Plot.axisY(ticks, { text, tickSize: 0, label, labelArrow: "none" }),
];
