// Sliders for every figure of the machine, on a logarithmic scale around the catalogue's value, in groups.

import { withValue } from "./address.js";
import { button, byId, h } from "./dom.js";
import { number, quantity, shownIn } from "./format.js";

const STEPS = 400;
const WIDE = matchMedia("(min-width: 60rem)"); // where the sliders are next to the answer
const MAIN = {
  "accelerator.matrix_flops": "Matrix units, 16 bits",
  "accelerator.hbm_bandwidth": "Memory bandwidth",
  "accelerator.hbm_bytes": "Memory capacity",
  "network.0.bandwidth": "Fast network, one direction",
  "network.1.bandwidth": "Network between domains, one port",
  "network.0.size": "GPUs in a fast domain",
};

/** Draw the sliders of a system; `change(patch, settled)` is called on a move, `settled` at its end. */
export function sliders(system, change) {
  const set = ({ path, value: usual }, value, settled) => {
    if (byId("figures").inert) return; // a slider that had the focus before it was
    const changed = value === usual ? undefined : value;
    change(({ figures }) => ({ figures: withValue(figures, path, changed) }), settled);
  };
  const open = [...byId("figures").querySelectorAll("details[open] summary")].map((one) => one.textContent);
  const groups = Map.groupBy(system.figures, (figure) => groupOf(figure, system));
  const rows = [...groups].map(([name, figures]) => {
    const isOpen = open.includes(name) || (name === "Main figures" && WIDE.matches);
    const body = h("div.body", figures.map((figure) => slider(figure, set)));
    return h("details", { open: isOpen }, h("summary", name), body);
  });
  byId("figures").replaceChildren(...rows);
}

function groupOf({ path }, system) {
  if (path in MAIN) return "Main figures";
  if (path.startsWith("accelerator.")) return "Accelerator";
  const tier = /^network\.(\d+)\./.exec(path)?.[1];
  return tier === undefined ? "Cluster" : `Network ${Number(tier) + 1}: ${system.tiers?.[tier] ?? "tier"}`;
}

function slider(figure, set) {
  const { path, meaning, value: usual } = figure;
  const id = `figure-${path}`;
  const [unit, size] = shownIn(usual, figure.unit);
  const move = (settled) => ({ target }) => set(figure, valueAt(figure, Number(target.value), size), settled);
  const listeners = { oninput: move(false), onchange: move(true) };
  const range = h("input", { id, type: "range", min: 0, max: STEPS, step: 1, ...listeners });
  const look = { type: "text", inputmode: "decimal", "aria-label": `${meaning}${unit && `, in ${unit}`}` };
  const onchange = ({ target }) => set(figure, typedValue(target.value, figure, size), true);
  const input = h("input.value", { ...look, onchange });
  const resetLabel = `Reset ${meaning} to ${quantity(usual, figure.unit)}`;
  const reset = button("reset", () => set(figure, usual, true), { class: "undo", "aria-label": resetLabel });
  const name = MAIN[path] ?? meaning;
  const label = h("label", { for: id, title: figure.source ?? null }, name[0].toUpperCase() + name.slice(1));
  const row = h("div.slider.field", label, input, h("span.unit", unit), range, reset);
  row.show = (value) => {
    const isNumber = typeof value === "number";
    row.classList.toggle("changed", value !== usual);
    reset.tabIndex = value === usual ? -1 : 0;
    const isDragged = () =>
      range === document.activeElement && Math.abs(placeOf(figure, value) - Number(range.value)) <= 1;
    if (isNumber && !isDragged()) range.value = placeOf(figure, value);
    const text = isNumber ? number(value / size, 4) : value;
    if (input !== document.activeElement || !isNumber) input.value = text;
    range.setAttribute("aria-valuetext", isNumber ? quantity(value, figure.unit) : value);
  };
  row.show(usual);
  return row;
}

/** Show the figures of a question; `isCurrent` is false until those of another machine are there. */
export function render(state, system, isCurrent) {
  byId("figures").inert = !isCurrent;
  for (const { path, value } of system.figures)
    byId(`figure-${path}`)?.parentElement.show(state.figures[path] ?? value);
  // Disabled, not removed: a change of the layout would end a drag.
  byId("figures-reset").disabled = !isCurrent || !Object.keys(state.figures).length;
}

function placeOf({ low, high, scale }, value) {
  const isLinear = scale === "linear";
  const share = isLinear ? (value - low) / (high - low) : Math.log(value / low) / Math.log(high / low);
  return Math.round(STEPS * Math.min(Math.max(share, 0), 1));
}

/** The value at a place of the slider: the catalogue's at its place, else a round one in the unit shown. */
function valueAt(figure, place, size) {
  if (place === placeOf(figure, figure.value)) return figure.value;
  const { low, high, scale } = figure;
  const share = place / STEPS;
  const value = scale === "linear" ? low + share * (high - low) : low * (high / low) ** share;
  if (scale === "whole") return Math.max(1, 2 ** Math.round(Math.log2(value)));
  return Number((value / size).toPrecision(3)) * size;
}

/** The typed value: a number in the unit shown, or text with its own unit; the catalogue's if empty. */
function typedValue(text, figure, size) {
  const plain = text.replaceAll(",", "").trim();
  if (plain === "") return figure.value;
  return Number.isFinite(Number(plain)) ? Number(plain) * size : plain;
}
