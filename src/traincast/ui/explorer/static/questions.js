// The form of what is asked: model, job, search and locks. Sliders of the machine stand in machine.js.

import { byId, h } from "./dom.js";
import { gib, large, whole } from "./format.js";

const NUMBERS = ["gpus", "global_batch", "seq"];
const CHOICES = ["model", "system", "framework", "assumptions", "strategy", "objective"];
const LEFT = { system: { figures: {} }, model: { seq: null, global_batch: null } }; // what goes with another system, another model
const MAIN_LOCKS = ["tp", "cp", "pp", "dp", "ep", "vp", "mbs", "zero", "recompute", "schedule", "precision"];

/** Fill what a field may be; `change(patch)` hears what the reader wants. */
export function prepare(catalog, change) {
  const paper = (name) => /-nvs\d*$/.test(name);
  options("model", [["Catalogue", catalog.models]]);
  options("system", [
    ["Clusters", catalog.systems.filter((name) => !paper(name))],
    ["Machines of arXiv 2410.00273", catalog.systems.filter(paper)],
  ]);
  options("framework", [[null, catalog.frameworks.map((one) => one.name)]], "usual");
  options("assumptions", [[null, catalog.assumptions]], "usual");
  options("strategy", [[null, catalog.strategies]], "all it has");
  options("objective", [[null, catalog.objectives]]);
  for (const id of CHOICES)
    byId(id).addEventListener("change", ({ target }) => change({ [id]: target.value || null, ...LEFT[id] }));
  for (const id of NUMBERS) {
    byId(id).addEventListener("input", ({ target }) => change({ [id]: target.value === "" ? null : Number(target.value) }, false));
    byId(id).addEventListener("change", ({ target }) => change({ [id]: target.value === "" ? null : Number(target.value) }));
  }
  for (const button of document.querySelectorAll("[data-times]")) {
    button.addEventListener("click", () =>
      change({ gpus: Math.max(1, Math.round((Number(byId("gpus").value) || 1) * Number(button.dataset.times))) }),
    );
  }
  byId("locks").replaceChildren(...locks(catalog, change));
  byId("question").addEventListener("submit", (event) => event.preventDefault());
}

function options(id, groups, usual = null) {
  const filled = groups
    .filter(([, names]) => names.length)
    .map(([label, names]) => {
      const rows = names.map((name) => h("option", { value: name }, name));
      return label && groups.length > 1 ? h("optgroup", { label }, rows) : rows;
    });
  byId(id).replaceChildren(...(usual ? [h("option", { value: "" }, usual)] : []), ...filled.flat());
}

function locks(catalog, change) {
  const set = (name, value) =>
    change((state) => {
      const { [name]: before, ...others } = state.locks;
      return { locks: value === "" ? others : { ...others, [name]: value } };
    });
  const main = MAIN_LOCKS.map((name) => catalog.locks.find((lock) => lock.name === name)).filter(Boolean);
  const rest = catalog.locks.filter((lock) => !main.includes(lock));
  const more = h("details", {}, h("summary", {}, "More knobs and choices"), h("div", { id: "locks-more" }));
  const rows = [main, rest].map((some) => some.map((lock) => lockField(lock, set)));
  more.lastElementChild.append(...rows[1]);
  return [...rows[0], more];
}

function lockField(lock, set) {
  const id = `lock-${lock.name}`;
  const single = lock.kind === "choice" && !lock.joined;
  const input = single
    ? h(
        "select",
        { id, onchange: ({ target }) => set(lock.name, lock.values.find((value) => String(value) === target.value) ?? "") },
        h("option", { value: "" }, "any"),
        lock.values.map((value) => h("option", { value: String(value) }, String(value))),
      )
    : h("input", {
        id,
        type: lock.kind === "number" ? "number" : "text",
        min: lock.kind === "number" ? 1 : null,
        placeholder: "any",
        list: lock.joined ? `${id}-list` : null,
        onchange: ({ target }) =>
          set(lock.name, target.value === "" ? "" : lock.kind === "number" ? Number(target.value) : target.value),
      });
  const known = lock.joined
    ? h(
        "datalist",
        { id: `${id}-list` },
        lock.values.map((value) => h("option", { value: String(value) })),
      )
    : null;
  return h(
    "div",
    { class: "field", "data-field": lock.name },
    h("label", { for: id, title: lock.meaning }, lock.name, h("span", { class: "hidden" }, `: ${lock.meaning}`)),
    input,
    known,
  );
}

/** Show a question in the form; what the server filled in stands as a placeholder. */
export function render(state, filled, catalog) {
  const model = typeof state.model === "object" && state.model ? pasted(state.model) : state.model;
  set("model", model ?? catalog.default.model);
  set("system", state.system ?? catalog.default.system);
  for (const id of ["framework", "assumptions", "strategy"]) set(id, state[id] ?? "");
  set("objective", state.objective ?? "time");
  for (const id of NUMBERS) set(id, state[id] ?? "");
  for (const lock of catalog.locks) {
    const value = state.locks[lock.name];
    set(`lock-${lock.name}`, value === undefined ? "" : String(value));
    byId(`lock-${lock.name}`)
      .closest(".field")
      .classList.toggle("held", value !== undefined);
  }
  const held = Object.keys(state.locks).length;
  byId("locks-count").textContent = held ? `${held} held` : "";
  if (filled) tell(filled);
}

/** What is taken where nothing is asked. */
function tell(filled) {
  byId("global_batch").placeholder = whole(filled.global_batch ?? 0);
  byId("seq").placeholder = whole(filled.seq ?? 0);
  for (const id of ["framework", "assumptions"])
    byId(id).options[0].textContent = byId(id).value ? "usual" : `usual: ${filled[id]}`;
}

function set(id, value) {
  const input = byId(id);
  if (input.tagName === "SELECT" && ![...input.options].some((option) => option.value === String(value)))
    input.append(h("option", { value }, value));
  if (input !== document.activeElement || input.tagName === "SELECT") input.value = value;
}

function pasted(document_) {
  return `pasted: ${document_.name ?? document_._name_or_path ?? document_.model_type ?? "a model"}`;
}

/** What is known of the model and the system, in a line each. */
export function facts(model, system) {
  if (model) {
    const active =
      model.active_parameters && model.active_parameters !== model.parameters ? ` (${large(model.active_parameters)} active)` : "";
    const without = model.left_out ? `without its ${model.left_out}: ` : "";
    byId("model-facts").textContent =
      `${without}${large(model.parameters)} parameters${active}, ${model.layers} layers, hidden ${whole(model.hidden)}, sequence ${whole(model.seq)}`;
  }
  if (system)
    byId("system-facts").textContent =
      `${system.accelerator}, ${gib(system.capacity_bytes)} each, ${system.fast_domain} in a fast domain`;
}
