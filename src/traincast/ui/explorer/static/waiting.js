// Searches under way for more than half a second: how far they are, and a button that ends them.

import { byId } from "./dom.js";
import { whole } from "./format.js";
import { ask } from "./server.js";

const FIRST = 500; // milliseconds after which a search under way is shown
const EVERY = 300; // milliseconds between two looks at it
let end = () => {}; // of what is shown

/** Ask again and again how far the search of `body` is, under a name, and `show` it; returns a function that
    ends this. */
export function watch(body, show, name = "progress") {
  let [timer, ended] = [0, false];
  const look = async () => {
    const status = await ask("/api/progress", body, { name }).catch(() => null);
    if (ended) return;
    show(status ?? {});
    timer = setTimeout(look, EVERY);
  };
  look();
  return () => ((ended = true), clearTimeout(timer));
}

/** Show what is asked about `body`, in `words`, after half a second; `announce` says it to those who cannot
    see it. Returns a function that ends this, unless something newer is shown. */
export function begin(body, words, announce = () => {}) {
  end();
  let stop = () => {};
  const timer = setTimeout(() => {
    announce(`${words} …`);
    stop = watch(body, (status) => show(words, status));
  }, FIRST);
  const own = () => (clearTimeout(timer), stop(), (byId("searching").hidden = true));
  end = own;
  return () => end === own && own();
}

function show(what, { done, total, candidates }) {
  const [bar, words] = [byId("searching").querySelector("progress"), byId("searching-says")];
  if (total) Object.assign(bar, { max: total, value: done });
  else bar.removeAttribute("value"); // it waits for a worker
  const far = `${whole(done)} of ${whole(total)} steps, ${whole(candidates)} candidates`;
  words.textContent = `${what} … ${total ? far : ""}`;
  byId("searching").hidden = false;
}
