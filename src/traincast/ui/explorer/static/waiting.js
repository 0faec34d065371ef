// Searches under way for more than a second: how far they are, and a button that ends them.

import { byId } from "./dom.js";
import { whole } from "./format.js";
import { ask } from "./server.js";

const FIRST = 1000; // milliseconds after which a search under way is shown
export const EVERY = 300; // milliseconds between two looks at it
let [timer, turn] = [0, 0];

/** Show what is asked about `body`, in `words`, from its second second on; `announce` says it to those who cannot
    see it. Returns a function that ends this, unless something newer is shown. */
export function begin(body, words, announce = () => {}) {
  end();
  const begun = turn;
  timer = setTimeout(() => (announce(`${words} …`), look(body, words, begun)), FIRST);
  return () => begun === turn && end();
}

async function look(body, words, begun) {
  const status = await ask("/api/progress", body).catch(() => null);
  if (begun !== turn) return;
  show(words, status ?? {});
  timer = setTimeout(look, EVERY, body, words, begun);
}

function show(what, { done, total, candidates }) {
  const [bar, words] = [byId("searching").querySelector("progress"), byId("searching-says")];
  if (total) Object.assign(bar, { max: total, value: done });
  else bar.removeAttribute("value"); // it waits for a worker
  const far = `${whole(done)} of ${whole(total)} steps, ${whole(candidates)} candidates`;
  words.textContent = `${what} … ${total ? far : ""}`;
  byId("searching").hidden = false;
}

function end() {
  turn += 1;
  clearTimeout(timer);
  byId("searching").hidden = true;
}
