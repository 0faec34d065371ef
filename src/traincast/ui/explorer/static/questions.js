// The form: model, job, search and locks. Sliders of the machine are in machine.js.

import { withValue } from "./address.js";
import { Combobox } from "./combobox.js";
import { byId, h, option } from "./dom.js";
import { gib, large, whole } from "./format.js";
import * as training from "./training.js";

const NUMBERS = ["gpus", "global_batch", "seq", "images", "image_size"];
const TEXTS = ["lengths", "given"];
const FLAGS = ["frozen_tower"]; // lists of two values, whose second is true
const SEARCHED = ["model", "system", "framework"]; // found by typing
const CHOICES = ["assumptions", "strategy", "objective"];
const ADAPTERS = ["rank", "targets"]; // settings of what is trained
const DEPENDENT = { system: { figures: {} }, model: { seq: null, global_batch: null, images: null, image_size: null, frozen_tower: null } }; // reset with it
const comboboxes = {};
const MAIN_LOCKS = ["tp", "cp", "pp", "dp", "ep", "vp", "mbs", "zero", "recompute", "schedule", "precision"];

/** Fill the choices of every field; `change(patch)` is called when the reader changes one. */
export function prepare(catalog, change) {
  const set = (id, value) => {
    byId(`${id}-facts`)?.replaceChildren("…"); // those shown are of another one
    change({ [id]: value || null, ...DEPENDENT[id] });
  };
  for (const id of SEARCHED)
    comboboxes[id] = new Combobox(byId(id), catalog.groups[id], (name) => set(id, name));
  options("assumptions", catalog.assumptions, "default");
  options("strategy", catalog.strategies, "all it has");
  options("objective", catalog.objectives);
  for (const id of CHOICES) byId(id).addEventListener("change", ({ target }) => set(id, target.value));
  prepareTraining(catalog.adapters, change);
  const numberOf = ({ value }) => (value === "" ? null : Number(value));
  for (const id of NUMBERS) {
    byId(id).addEventListener("input", ({ target }) => change({ [id]: numberOf(target) }, false));
    byId(id).addEventListener("change", ({ target }) => change({ [id]: numberOf(target) }));
  }
  for (const id of TEXTS)
    byId(id).addEventListener("change", ({ target }) => change({ [id]: target.value.trim() || null }));
  for (const id of FLAGS)
    byId(id).addEventListener("change", ({ target }) => change({ [id]: target.value === "true" || null }));
  for (const times of document.querySelectorAll("[data-times]"))
    times.addEventListener("click", () => {
      const gpus = (Number(byId("gpus").value) || 1) * Number(times.dataset.times);
      change({ gpus: Math.max(1, Math.round(gpus)) });
    });
  byId("locks").replaceChildren(...locks(catalog, change));
  byId("question").addEventListener("submit", (event) => event.preventDefault());
}

/** Fill the controls of what is trained; a change of one keeps the others. */
function prepareTraining({ rank, targets, layers }, change) {
  const group = ([label, methods]) => h("optgroup", { label }, methods.map(([value, words]) => option(value, words)));
  byId("train").replaceChildren(...training.METHODS.map(group));
  byId("rank").placeholder = rank;
  byId("targets").placeholder = targets;
  byId("targets-list").replaceChildren(...layers.map((name) => option(name)));
  const set = (patch) =>
    change((state) => ({ train: training.write({ ...training.read(state.train), ...patch }) }));
  byId("train").addEventListener("change", ({ target }) => set({ method: target.value, more: [] }));
  for (const id of ADAPTERS)
    byId(id).addEventListener("change", ({ target }) => set({ [id]: target.value.trim() }));
}

/** Show what is trained; settings without a control are named. */
function renderTraining({ train }) {
  const { method, more, ...settings } = training.read(train);
  set("train", method);
  for (const id of ADAPTERS) set(id, settings[id]);
  byId("adapters").hidden = !training.hasAdapters(method);
  byId("adapters-more").textContent = more.length ? `And ${more.join(", ")}` : "";
}

function options(id, names, usual = null) {
  const first = usual ? [option("", usual)] : [];
  byId(id).replaceChildren(...first, ...names.map((name) => option(name)));
}

function locks(catalog, change) {
  const set = (name, value) => change((state) => ({ locks: withValue(state.locks, name, value) }));
  const main = MAIN_LOCKS.map((name) => catalog.locks.find((lock) => lock.name === name)).filter(Boolean);
  const rest = catalog.locks.filter((lock) => !main.includes(lock));
  const fields = (group) => group.map((lock) => lockField(lock, set));
  const more = h("div", { id: "locks-more" }, fields(rest));
  return [...fields(main), h("details", h("summary", "More knobs and choices"), more)];
}

function lockField(lock, set) {
  const id = `lock-${lock.name}`;
  const hint = h("span.hidden", `: ${lock.meaning}`);
  const label = h("label", { for: id, title: lock.meaning }, lock.name, hint);
  return h("div.field", label, lockInput(lock, id, set));
}

/** A list of values; or an input, with suggestions where values may be joined. */
function lockInput({ name, kind, joined, values }, id, set) {
  if (kind === "choice" && !joined) {
    const onchange = ({ target }) => set(name, values.find((value) => String(value) === target.value));
    return h("select", { id, onchange }, option("", "any"), values.map((value) => option(value)));
  }
  const isNumber = kind === "number";
  const valueOf = (text) => (isNumber ? Number(text) : text);
  const onchange = ({ target: { value } }) => set(name, value === "" ? undefined : valueOf(value));
  const list = joined ? `${id}-list` : null;
  const look = { type: isNumber ? "number" : "text", min: isNumber ? 1 : null, placeholder: "any" };
  const input = h("input", { id, list, ...look, onchange });
  return [input, joined ? h("datalist", { id: list }, values.map((value) => option(value))) : null];
}

/** Show a question in the form; defaults that the server filled in are placeholders. */
export function render(state, filled, catalog) {
  const shown = typeof state.model === "object" ? { ...state, model: pastedName(state.model) } : state;
  for (const id of SEARCHED) comboboxes[id].show(shown[id] ?? "");
  for (const id of [...CHOICES, ...NUMBERS, ...TEXTS]) set(id, shown[id] ?? "");
  renderTraining(state);
  for (const id of FLAGS) set(id, shown[id] ? "true" : "");
  for (const { name } of catalog.locks) {
    const value = state.locks[name];
    set(`lock-${name}`, value === undefined ? "" : String(value));
    byId(`lock-${name}`).closest(".field").classList.toggle("held", value !== undefined);
  }
  const count = Object.keys(state.locks).length;
  byId("locks-count").textContent = count ? `${count} locked` : "";
  if (!filled) return;
  for (const id of ["global_batch", "seq"]) byId(id).placeholder = whole(filled[id]);
  byId("framework").placeholder = `default: ${filled.framework}`;
  byId("assumptions").options[0].textContent =
    byId("assumptions").value ? "default" : `default: ${filled.assumptions}`;
}

function set(id, value) {
  const input = byId(id);
  const isSelect = input.tagName === "SELECT";
  if (isSelect && ![...input.options].some((known) => known.value === String(value)))
    input.append(option(value));
  if (isSelect || input !== document.activeElement) input.value = value;
}

function pastedName(config) {
  return `pasted: ${config.name ?? config._name_or_path ?? config.model_type ?? "a model"}`;
}

/** Show the key figures of the model and of the system, in a line each. */
export function facts(model, system) {
  if (model) {
    const { parameters, active_parameters: active, layers, hidden, seq, left_out: leftOut, images } = model;
    const activeText = active && active !== parameters ? ` (${large(active)} active)` : "";
    const without = leftOut ? `without its ${leftOut}: ` : "";
    const shape = `${layers} layers, hidden ${whole(hidden)}, sequence ${whole(seq)}`;
    const seen = images ? `, ${images}` : "";
    byId("model-facts").textContent = `${without}${large(parameters)} parameters${activeText}, ${shape}${seen}`;
  }
  if (system) {
    const { accelerator, capacity_bytes: capacity, fast_domain: domain } = system;
    byId("system-facts").textContent = `${accelerator}, ${gib(capacity)} each, ${domain} in a fast domain`;
  }
}
