// A model of the reader: a pasted config.json, checked before it is used.

import { byId, h } from "./dom.js";
import { ask, Refused } from "./server.js";

export function prepare(change) {
  const [box, text] = [byId("config"), byId("config-text")];
  byId("paste").addEventListener("click", () => {
    showProblems([]);
    box.showModal();
  });
  byId("config-use").addEventListener("click", async () => {
    const model = await checkedModel(text.value);
    if (model === null) return;
    box.close();
    change({ model, seq: null, global_batch: null });
  });
}

/** The model that a text describes; null, with the problems shown, if the server does not accept it. */
async function checkedModel(text) {
  try {
    const model = JSON.parse(text);
    if (model?.constructor !== Object) throw new SyntaxError("it must be an object: { … }");
    showProblems([]);
    return (await ask("/api/model", { model }, { onBusy: (line) => showProblems([line]) })) && model;
  } catch (error) {
    if (error instanceof SyntaxError) showProblems([`This is not JSON: ${error.message}`]);
    else if (error instanceof Refused) showProblems(error.problems);
    else throw error;
    return null;
  }
}

function showProblems(lines) {
  const text = byId("config-text");
  text.parentElement.querySelectorAll(".error").forEach((line) => line.remove());
  text.after(...lines.map((line) => h("p.error", { role: "alert" }, line)));
  text.ariaInvalid = String(lines.length > 0);
}
