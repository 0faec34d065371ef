// Take it along: the search or a plan as Python, as a command, as the flags of a framework.

import { question } from "./address.js";
import { byId, h, option } from "./dom.js";
import { ask } from "./server.js";

let texts = []; // [name, text, what it cannot express]

/** Wire the controls; `current()` is the question, `choices()` rows of `[value, words, knobs or null]`. */
export function prepare(current, choices) {
  byId("take-what").addEventListener("change", () => renew(current(), choices()));
  byId("take-as").addEventListener("change", show);
  byId("take-copy").addEventListener("click", () => copy(byId("take-copy"), byId("take-text").textContent));
}

/** Ask for the texts of the choice. */
export async function renew(state, choices) {
  fill(byId("take-what"), choices);
  const [, , knobs] = choices.find(([value]) => value === byId("take-what").value);
  const body = { ...question(state), plan: knobs };
  const answer = await ask("/api/copy", body).catch((error) => ({ failure: error.message }));
  if (answer === null) return;
  const launches = answer.launch?.map(({ name, text, unsaid }) => [`launch: ${name}`, text, unsaid]);
  texts = launches
    ? [["Command line", answer.cli, []], ["Python", answer.python, []], ...launches]
    : [["text", answer.failure, []]];
  fill(byId("take-as"), texts.map(([name]) => [name, name]));
  show();
}

/** Fill a list of options; what was chosen stays chosen if it is still there. */
function fill(select, options) {
  const { value: chosen } = select;
  select.replaceChildren(...options.map(([value, words]) => option(value, words)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

function show() {
  const [, text, unsaid] = texts.find(([name]) => name === byId("take-as").value) ?? ["", "", []];
  byId("take-text").textContent = text;
  byId("take-text").hidden = byId("take-copy").disabled = !text; // a framework that cannot run the plan
  byId("take-unsaid").replaceChildren(...unsaid.map((line) => h("li", line)));
}

/** Copy text; the button reports it. */
export async function copy(control, text) {
  control.dataset.words ??= control.textContent;
  try {
    await navigator.clipboard.writeText(text);
    control.textContent = "Copied";
  } catch {
    control.textContent = "Not allowed to copy";
  }
  setTimeout(() => (control.textContent = control.dataset.words), 1500);
}
