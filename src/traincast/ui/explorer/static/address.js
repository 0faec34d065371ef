// The address holds the whole question: a key is a field, a lock (a knob's name) or, with a dot, a figure.
//   /?model=llama-3-70b&system=dgx-h100&gpus=512&tp=8&network.1.bandwidth=1e11&pin=tp-8+pp-4+dp-16&view=a

const NAMES = ["model", "system", "framework", "objective", "assumptions", "strategy", "tokens"];
const NUMBERS = ["gpus", "global_batch", "seq", "top", "price", "restart"];
const ALWAYS = ["model", "system", "gpus"]; // in every address
export const FIELDS = [...NAMES, ...NUMBERS];

/** A question with every part of it present. */
export function blank(state = {}) {
  return { pins: [], view: "best", ...state, figures: { ...state.figures }, locks: { ...state.locks } };
}

/** The question of an address. */
export function read(query, catalog) {
  const parameters = new URLSearchParams(query);
  const known = new Map(catalog.locks.map((lock) => [lock.name, lock]));
  const state = blank(catalog.default);
  for (const [key, text] of parameters) {
    if (key === "pin") state.pins.push(pinOf(text, known));
    else if (key === "view") state.view = text;
    else if (key.includes(".")) state.figures[key] = numeric(text);
    else if (NUMBERS.includes(key)) state[key] = numeric(text);
    else if (key === "model" && text.startsWith("{")) state.model = parsed(text);
    else if (NAMES.includes(key)) state[key] = text;
    else if (known.has(key)) state.locks[key] = valueOf(known.get(key), text);
  }
  return state;
}

/** The address of a question, `?…`; defaults are left out, except for model, system and GPUs. */
export function write(state, catalog) {
  const parameters = new URLSearchParams();
  for (const key of FIELDS) {
    const value = state[key];
    if (value === null || value === undefined || value === "") continue;
    if (value === catalog.default[key] && !ALWAYS.includes(key)) continue;
    parameters.set(key, typeof value === "object" && key === "model" ? JSON.stringify(value) : String(value));
  }
  for (const [path, value] of Object.entries(state.figures)) parameters.set(path, value);
  for (const [name, value] of Object.entries(state.locks)) parameters.set(name, value);
  for (const pin of state.pins) parameters.append("pin", pinText(pin));
  if (state.view !== "best") parameters.set("view", state.view);
  return `?${parameters}`;
}

/** What is sent to the server: the question without what only the page needs. */
export function question({ pins, view, ...fields }) {
  const isGiven = ([, value]) => value !== "" && value !== undefined && value !== null;
  return Object.fromEntries(Object.entries(fields).filter(isGiven));
}

const pinText = (knobs) =>
  Object.entries(knobs)
    .map(([name, value]) => `${name}-${value}`)
    .join(" ");

/** Whether two plans are the same, whatever the order of their knobs. */
export const samePlan = (a, b) => sorted(a) === sorted(b);

const sorted = (knobs) => pinText(Object.fromEntries(Object.entries(knobs).sort()));

function pinOf(text, known) {
  const parts = text.split(" ").filter(Boolean);
  const split = (part) => [part.slice(0, part.indexOf("-")), part.slice(part.indexOf("-") + 1)];
  return Object.fromEntries(parts.map(split).map(([name, value]) => [name, valueOf(known.get(name), value)]));
}

function valueOf(lock, text) {
  if (lock?.kind === "text") return text;
  if (lock?.kind === "choice") return lock.values.find((value) => String(value) === text) ?? text;
  return numeric(text);
}

function numeric(text) {
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
