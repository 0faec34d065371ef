// A search under way for more than a second: how far it is, and a button that ends it.

import { byId } from "./dom.js";
import { whole } from "./format.js";
import { ask } from "./server.js";

const FIRST = 1000; // milliseconds after which a search under way is shown
const EVERY = 300; // milliseconds between two looks at it
let [timer, turn] = [0, 0];

/** Show the search for `body` from its second second on; `announce` says it to those who cannot see it. */
export function begin(body, announce) {
  end();
  timer = setTimeout(() => (announce("Searching …"), look(body, turn)), FIRST);
}

async function look(body, begun) {
  const status = await ask("/api/progress", body).catch(() => null);
  if (begun !== turn) return;
  show(status ?? {});
  timer = setTimeout(look, EVERY, body, begun);
}

function show({ done, total, candidates }) {
  const [bar, words] = [byId("searching").querySelector("progress"), byId("searching-says")];
  if (total) Object.assign(bar, { max: total, value: done });
  else bar.removeAttribute("value"); // it waits for a worker
  const far = `${done} of ${total} steps, ${whole(candidates)} candidates`;
  words.textContent = total ? far : "Searching …";
  byId("searching").hidden = false;
}

export function end() {
  turn += 1;
  clearTimeout(timer);
  byId("searching").hidden = true;
}
