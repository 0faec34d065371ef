// Take it along: the search or a plan as Python, as a command, as the flags of a framework.

import { question } from "./address.js";
import { byId, h } from "./dom.js";
import { ask } from "./server.js";

let texts = null;

/** Wire the controls; `current()` is the question, `plans()` rows of `[value, words, knobs or null]`. */
export function prepare(current, plans) {
  const again = () => renew(current(), plans());
  byId("take-what").addEventListener("change", again);
  byId("take-as").addEventListener("change", show);
  byId("take-copy").addEventListener("click", () => copied(byId("take-copy"), byId("take-text").textContent));
}

/** Ask for the texts of what is chosen. */
export async function renew(state, plans) {
  const chosen = byId("take-what").value;
  byId("take-what").replaceChildren(...plans.map(([value, words]) => h("option", { value }, words)));
  if (plans.some(([value]) => value === chosen)) byId("take-what").value = chosen;
  const [, , knobs] = plans.find(([value]) => value === byId("take-what").value) ?? [null, null, null];
  const told = await ask("/api/copy", { ...question(state), plan: knobs }).catch((error) => ({ failed: error.message }));
  if (told === null) return;
  texts = told.failed
    ? [["text", told.failed, []]]
    : [
        ["Command line", told.cli, []],
        ["Python", told.python, []],
        ...told.launch.map((one) => [`launch: ${one.name}`, one.text, one.unsaid]),
      ];
  const as = byId("take-as").value;
  byId("take-as").replaceChildren(...texts.map(([name]) => h("option", { value: name }, name)));
  if (texts.some(([name]) => name === as)) byId("take-as").value = as;
  show();
}

function show() {
  const [, text, unsaid] = texts?.find(([name]) => name === byId("take-as").value) ?? ["", "", []];
  byId("take-text").textContent = text;
  byId("take-unsaid").replaceChildren(...unsaid.map((line) => h("li", {}, line)));
}

/** Copy text, and say so on the button. */
export async function copied(button, text) {
  const words = button.dataset.words ?? button.textContent;
  button.dataset.words = words;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed to copy";
  }
  setTimeout(() => (button.textContent = words), 1500);
}
