// Problems of a question, each at the field it is about; the rest above the answer.

import { FIELDS } from "./address.js";
import { button, byId, h } from "./dom.js";

const OTHER_WORDS = { gbs: "global_batch", "global batch": "global_batch" };

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
  byId("trouble").replaceChildren(h("p", `${message.replace(/[.]?$/, ".")} Trying again …`));
}

/** Show every problem where it belongs; `answered` is whether an earlier answer is still shown below, and
    `again` asks again where the server did not answer. */
export function show({ problems, fields, status }, answered, again) {
  clear();
  const rest = problems.filter((line, i) => !showAtField(fields[i] ?? fieldOf(line), line, i));
  const lines = rest.length ? rest : ["The question cannot be answered; see the marked fields."];
  if (answered) lines.push("Below is the last answer.");
  byId("trouble").replaceChildren(...lines.map((line) => h("p", line)));
  if (!status) byId("trouble").append(button("Search again", () => (clear(), again())));
}

/** Show a line at its field; false if there is no such field. */
function showAtField(name, line, i) {
  const field = name && document.querySelector(`#question [data-field="${CSS.escape(name)}"]`);
  if (!field) return false;
  const input = field.querySelector("input, select");
  const id = `error-${i}`;
  field.append(h("p.error", { id }, line));
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", id);
  for (let box = field.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  return true;
}

/** The field that a line is about, from its words. */
function fieldOf(line) {
  const names = [...document.querySelectorAll("#question [data-field]")].map((field) => field.dataset.field);
  const all = new Set([...names, ...FIELDS, ...Object.keys(OTHER_WORDS)]);
  const known = [...all].sort((a, b) => b.length - a.length); // the longest match counts
  const unknown = /^unknown (\w+)/.exec(line)?.[1];
  const name =
    known.find((word) => word === unknown) ??
    known.find((word) => line.startsWith(word)) ??
    known.find((word) => line.includes(`${word} =`) || line.includes(`"${word}"`));
  return OTHER_WORDS[name] ?? name ?? null;
}
