// What is wrong with a question, beside the field it is about; the rest above the answer.

import { FIELDS } from "./address.js";
import { byId, h } from "./dom.js";

const OTHER_WORDS = { gbs: "global_batch", "global batch": "global_batch" };

/** Take away what was said before. */
export function clear() {
  document.querySelectorAll("#question .error").forEach((line) => line.remove());
  document.querySelectorAll("#question [aria-invalid]").forEach((input) => {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  });
  byId("trouble").replaceChildren();
}

/** The server asks to wait. */
export function wait(message) {
  byId("trouble").replaceChildren(h("p", {}, `${message.replace(/[.]?$/, ".")} Trying again …`));
}

/** Say every problem where it belongs; `answered` is whether an earlier answer still stands below. */
export function tell(refused, answered) {
  clear();
  const rest = refused.problems.filter((line, i) => !beside(refused.fields[i] ?? guess(line), line, i));
  const lines = rest.length
    ? rest
    : [
        `The question cannot be answered as it stands; what is wrong stands beside the fields.${answered ? " Below is the last answer." : ""}`,
      ];
  byId("trouble").replaceChildren(...lines.map((line) => h("p", {}, line)));
}

/** Put a line beside its field; whether there is one. */
function beside(name, line, i) {
  const field = name && document.querySelector(`#question [data-field="${CSS.escape(name)}"]`);
  if (!field) return false;
  const input = field.querySelector("input, select");
  const id = `error-${i}`;
  field.append(h("p", { class: "error", id }, line));
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", id);
  for (let box = field.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  return true;
}

/** The field a line is about, from its words. */
function guess(line) {
  const names = [...document.querySelectorAll("#question [data-field]")].map((field) => field.dataset.field);
  const known = [...new Set([...names, ...FIELDS, ...Object.keys(OTHER_WORDS)])].sort((a, b) => b.length - a.length);
  const unknown = /^unknown (\w+)/.exec(line)?.[1];
  const found =
    known.find((name) => name === unknown) ??
    known.find((name) => line.startsWith(name)) ??
    known.find((name) => line.includes(`${name} =`) || line.includes(`"${name}"`));
  return OTHER_WORDS[found] ?? found ?? null;
}
