// Sliders for every figure of the machine, on a logarithmic scale around the catalogue's value, in groups.

import { byId, h } from "./dom.js";
import { number, quantity, shownIn } from "./format.js";

const STEPS = 400;
const WIDE = matchMedia("(min-width: 60rem)"); // where the sliders stand beside the answer
const MAIN = [
  "accelerator.matrix_flops",
  "accelerator.hbm_bandwidth",
  "accelerator.hbm_bytes",
  "network.0.bandwidth",
  "network.1.bandwidth",
  "network.0.size",
];

/** Draw the sliders of a system; `change(patch, settled)` hears of a move, `settled` once it has ended. */
export function sliders(system, change) {
  const set = (path, value, settled) =>
    change((state) => {
      const { [path]: before, ...others } = state.figures;
      const usual = system.figures.find((figure) => figure.path === path).value;
      return { figures: value === usual ? others : { ...others, [path]: value } };
    }, settled);
  const open = new Set([...byId("figures").querySelectorAll("details[open]")].map((group) => group.dataset.group));
  const groups = Map.groupBy(system.figures, (figure) => groupOf(figure, system));
  const rows = [...groups].map(([name, figures]) =>
    h(
      "details",
      { "data-group": name, open: open.has(name) || (name === "Main figures" && WIDE.matches) },
      h("summary", {}, name),
      h(
        "div",
        { class: "body" },
        figures.map((figure) => slider(figure, set)),
      ),
    ),
  );
  byId("figures").replaceChildren(...rows);
}

function groupOf({ path }, system) {
  if (MAIN.includes(path)) return "Main figures";
  if (path.startsWith("accelerator.")) return "Accelerator";
  const tier = /^network\.(\d+)\./.exec(path)?.[1];
  return tier === undefined ? "Cluster" : `Network ${Number(tier) + 1}: ${system.tiers?.[Number(tier)] ?? "tier"}`;
}

function slider(figure, set) {
  const id = `figure-${figure.path}`;
  const [unit, size] = shownIn(figure.value, figure.unit);
  const place = h("input", {
    id,
    type: "range",
    min: 0,
    max: STEPS,
    step: 1,
    oninput: ({ target }) => set(figure.path, valueAt(figure, Number(target.value), size), false),
    onchange: ({ target }) => set(figure.path, valueAt(figure, Number(target.value), size), true),
  });
  const value = h("input", {
    type: "text",
    class: "value",
    inputmode: "decimal",
    "aria-label": `${figure.meaning}${unit ? `, in ${unit}` : ""}`,
    onchange: ({ target }) => set(figure.path, typed(target.value, figure, size), true),
  });
  const undo = h(
    "button",
    {
      type: "button",
      class: "undo",
      "aria-label": `Reset ${figure.meaning} to ${quantity(figure.value, figure.unit)}`,
      onclick: () => set(figure.path, figure.value, true),
    },
    "reset",
  );
  const row = h(
    "div",
    { class: "slider field", "data-field": figure.path },
    h("label", { for: id, title: figure.source ?? null }, nameOf(figure)),
    value,
    h("span", { class: "unit" }, unit),
    place,
    undo,
  );
  row.show = (now) => {
    const changed = now !== figure.value;
    row.classList.toggle("changed", changed);
    undo.tabIndex = changed ? 0 : -1;
    if (typeof now === "number" && !(place === document.activeElement && Math.abs(placeOf(figure, now) - Number(place.value)) <= 1))
      place.value = placeOf(figure, now);
    if (value !== document.activeElement || typeof now !== "number")
      value.value = typeof now === "number" ? number(now / size, 4) : now;
    place.setAttribute("aria-valuetext", typeof now === "number" ? quantity(now, figure.unit) : now);
  };
  row.show(figure.value);
  return row;
}

const NAMES = {
  "accelerator.matrix_flops": "Matrix units, 16 bits",
  "accelerator.hbm_bandwidth": "Memory bandwidth",
  "accelerator.hbm_bytes": "Memory capacity",
  "network.0.bandwidth": "Fast network, one direction",
  "network.1.bandwidth": "Network between domains, one port",
  "network.0.size": "GPUs in a fast domain",
};

function nameOf({ path, meaning }) {
  const name = NAMES[path] ?? meaning;
  return name[0].toUpperCase() + name.slice(1);
}

/** Show the figures of a question. */
export function render(state, system) {
  for (const figure of system.figures)
    document.querySelector(`[data-field="${figure.path}"]`)?.show(state.figures[figure.path] ?? figure.value);
  byId("figures-reset").disabled = !Object.keys(state.figures).length; // made visible, not put in: a new box would end a drag
}

function share({ low, high, scale }, value) {
  return scale === "linear" ? (value - low) / (high - low) : Math.log(value / low) / Math.log(high / low);
}

function placeOf(figure, value) {
  return Math.round(STEPS * Math.min(Math.max(share(figure, value), 0), 1));
}

/** The value at a place of the slider: the catalogue's own where it stands, else a round one in the unit shown. */
function valueAt(figure, place, size) {
  if (place === placeOf(figure, figure.value)) return figure.value;
  const { low, high, scale } = figure;
  const at = place / STEPS;
  if (scale === "whole") return Math.max(1, 2 ** Math.round(Math.log2(low * (high / low) ** at)));
  const value = scale === "linear" ? low + at * (high - low) : low * (high / low) ** at;
  return Number((value / size).toPrecision(3)) * size;
}

/** What was typed: a number in the unit shown, or text with a unit of its own; nothing is the catalogue's value. */
function typed(text, figure, size) {
  const plain = text.replaceAll(",", "").trim();
  if (plain === "") return figure.value;
  return Number.isFinite(Number(plain)) ? Number(plain) * size : text.trim();
}
