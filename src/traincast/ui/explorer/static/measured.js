// A step that was measured, against the predicted one of the plan shown: causes, and what to change.

import { byId, h, scroller, table } from "./dom.js";
import { ask } from "./server.js";

const INPUTS = ["measured-seconds", "measured-mfu"];

/** Wire the form; `current()` is the request for the plan shown, or null where there is none. */
export function prepare(current) {
  byId("measured-form").addEventListener("submit", (event) => {
    event.preventDefault();
    renew(current());
  });
  for (const id of INPUTS)
    byId(id).addEventListener("input", () => {
      for (const other of INPUTS) if (other !== id) byId(other).value = "";
    });
}

/** Ask about what was measured, if anything was. */
export async function renew(request) {
  const [time, mfu] = INPUTS.map((id) => byId(id).value);
  byId("measured").hidden = request === null;
  if (request === null || (!time && !mfu)) {
    byId("measured-body").replaceChildren();
    return;
  }
  const seen = time ? { step_seconds: Number(time) } : { mfu: Number(mfu) / 100 };
  const failed = (error) => ({ failure: error.message });
  const answer = await ask("/api/measured", { ...request, ...seen }).catch(failed);
  if (answer !== null) byId("measured-body").replaceChildren(...shown(answer));
}

function shown({ failure, sentences, causes, changes }) {
  if (failure) return [h("p.error", failure)];
  const said = sentences.map((sentence) => h("p", `${sentence[0].toUpperCase()}${sentence.slice(1)}`));
  return [...said, ...list(causes), ...list(changes)];
}

function list({ title, columns, rows }) {
  if (!rows.length) return [];
  return [h("h3", title), scroller(title, table(title, columns, rows, { class: "of-plans" }))];
}
