// Problems of a question, each at the field it is about; the rest above the answer.

import { button, byId, h } from "./dom.js";

const WITHOUT_INPUT = ["tokens", "top", "price", "restart"]; // fields of the address alone
const OTHER_WORDS = { gbs: "global_batch", "global batch": "global_batch", "r =": "rank", "unknown training": "train" };

/** A sentence with its full stop. */
const stopped = (line) => line.replace(/(?<![.?])$/, ".");

/** Remove earlier problems. */
export function clear() {
  document.querySelectorAll("#question .error").forEach((line) => line.remove());
  document.querySelectorAll("#question [aria-invalid]").forEach((input) => {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  });
  byId("trouble").replaceChildren();
}

/** Show that the server asks to wait. */
export function wait(message) {
  byId("trouble").replaceChildren(h("p", `${stopped(message)} Trying again …`));
}

/** Show every problem where it belongs; `answered` is whether an earlier answer is still shown below, and
    `again` asks again what was cancelled. */
export function show({ problems, status }, answered, again) {
  clear();
  const rest = problems.filter((line, i) => !showAtField(fieldOf(line), line, i));
  const lines = rest.length ? rest : ["The question cannot be answered; see the marked fields."];
  if (answered) lines.push(`${stopped(lines.pop())} Below is the last answer.`);
  byId("trouble").replaceChildren(...lines.map((line) => h("p", line)));
  if (!status) byId("trouble").append(button("Search again", () => (clear(), again())));
}

/** Show a line at its field; false if there is no such field. */
function showAtField(name, line, i) {
  const input = inputs().get(name);
  if (!input) return false;
  const [field, id] = [input.closest(".field"), `error-${i}`];
  field.append(h("p.error", { id }, atField(line)));
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", id);
  for (let box = field.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  return true;
}

/** A line as it stands beside its field, which shows name, value and unit already. */
function atField(line) {
  const said = line.replace(/^(global batch: )?[\w.]+ = .*?: (?=\w)/, "");
  return said[0].toUpperCase() + said.slice(1);
}

/** The inputs of the form by field: a field of the question, a figure's path, or a lock's name. */
function inputs() {
  const all = document.querySelectorAll("#question .field :is(input, select)[id]");
  return new Map([...all].map((input) => [input.id.replace(/^(figure|lock)-/, ""), input]));
}

/** The field that a line is about, from its words. */
function fieldOf(line) {
  const all = [...inputs().keys(), ...WITHOUT_INPUT, ...Object.keys(OTHER_WORDS)];
  const known = all.sort((a, b) => b.length - a.length); // the longest match counts
  const unknown = /^unknown (\w+)/.exec(line)?.[1];
  const name =
    known.find((word) => word === unknown) ??
    known.find((word) => line.startsWith(word)) ??
    known.find((word) => line.includes(`${word} =`) || line.includes(`"${word}"`));
  return OTHER_WORDS[name] ?? name ?? null;
}
