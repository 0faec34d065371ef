// The address holds the whole question: a key is a field, a lock (a knob's name) or, with a dot, a figure.
//   /?model=llama-3-70b&system=dgx-h100&gpus=512&tp=8&network.1.bandwidth=1e11&pin=tp-8+pp-4+dp-16&view=a
// The server reads it; the browser's history holds the question of each address.

const ALWAYS = ["model", "system", "gpus"]; // in every address

/** A question with every part of it present. */
export function blank(state = {}) {
  return { pins: [], view: "best", ...state, figures: { ...state.figures }, locks: { ...state.locks } };
}

/** The address of a question, `?…`; defaults are left out, except for model, system and GPUs. */
export function write({ pins, view, figures, locks, ...fields }, { default: defaults }) {
  const isSaid = ([key, value]) =>
    (value ?? "") !== "" && (value !== defaults[key] || ALWAYS.includes(key));
  const parameters = new URLSearchParams(Object.entries(fields).filter(isSaid).map(written));
  for (const [name, value] of Object.entries({ ...figures, ...locks })) parameters.set(name, value);
  const pinText = (knobs) => Object.entries(knobs).map((knob) => knob.join("-")).join(" ");
  for (const pin of pins) parameters.append("pin", pinText(pin));
  if (view !== "best") parameters.set("view", view);
  return `?${parameters}`;
}

const written = ([key, value]) => [key, typeof value === "object" ? JSON.stringify(value) : value];

/** Values with one of them set, or left out where it is undefined. */
export function withValue(values, name, value) {
  const { [name]: _, ...others } = values;
  return value === undefined ? others : { ...others, [name]: value };
}

/** What is sent to the server: the question without what only the page needs. */
export function question({ pins, view, ...fields }) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => (value ?? "") !== ""));
}

/** Whether two plans are the same, whatever the order of their knobs; one may leave its placement open. */
export function samePlan(a, b) {
  const isPlacement = (name) => name.startsWith("fast_");
  const arePlaced = [a, b].every((knobs) => Object.keys(knobs).some(isPlacement));
  const text = (knobs) =>
    Object.entries(knobs).filter(([name]) => arePlaced || !isPlacement(name)).sort().join(" ");
  return text(a) === text(b);
}
