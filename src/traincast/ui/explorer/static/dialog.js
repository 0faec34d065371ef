// A model of the reader's own: a pasted config.json, tried before it is used.

import { byId, h } from "./dom.js";
import { ask, Refused } from "./server.js";

export function prepare(change) {
  const [box, text] = [byId("config"), byId("config-text")];
  byId("paste").addEventListener("click", () => {
    say([]);
    box.showModal();
  });
  byId("config-use").addEventListener("click", async () => {
    const model = await usable(text.value);
    if (model === null) return;
    box.close();
    change({ model, seq: null, global_batch: null });
  });
}

/** The model a text describes, once the server has taken it; null after saying what is wrong. */
async function usable(text) {
  try {
    const model = JSON.parse(text);
    if (model === null || typeof model !== "object" || Array.isArray(model)) throw new SyntaxError("it must be an object: { … }");
    say([]);
    return (await ask("/api/model", { model })) && model;
  } catch (error) {
    if (error instanceof SyntaxError) say([`This is not JSON: ${error.message}`]);
    else if (error instanceof Refused) say(error.problems);
    else throw error;
    return null;
  }
}

function say(lines) {
  const field = byId("config-text").parentElement;
  field.querySelectorAll(".error").forEach((line) => line.remove());
  field.append(...lines.map((line) => h("p", { class: "error", role: "alert" }, line)));
  byId("config-text").toggleAttribute("aria-invalid", false);
  if (lines.length) byId("config-text").setAttribute("aria-invalid", "true");
}
