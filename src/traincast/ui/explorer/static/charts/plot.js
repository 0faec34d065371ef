// Observable Plot, loaded behind the first drawing, and without its <style> elements: the page forbids those.

import "../vendor/d3.min.js";
import "../vendor/plot.min.js";

export const { Plot } = globalThis;

/** Plot names the groups of a drawing by `aria-label`, which ARIA prohibits where there is no role. */
const unlabel = (drawing) =>
  drawing.querySelectorAll("g[aria-label]").forEach((group) => {
    group.dataset.mark = group.ariaLabel;
    group.removeAttribute("aria-label");
  });

/** A drawing of marks. */
export function plotted(options) {
  const drawing = Plot.plot({ ...options, style: { background: "none", color: "inherit" } });
  drawing.querySelectorAll("style").forEach((element) => element.remove());
  unlabel(drawing);
  const anew = { childList: true, subtree: true }; // as the pointer draws its marks
  new MutationObserver(() => unlabel(drawing)).observe(drawing, anew);
  return drawing;
}

/** A logarithmic axis with a line and a number at every tick; Plot's own leaves some numbers out. */
export const logAxis = (label, ticks, text) => [
  Plot.gridY(ticks),
  Plot.axisY(ticks, { text, tickSize: 0, label, labelArrow: "none" }),
];
