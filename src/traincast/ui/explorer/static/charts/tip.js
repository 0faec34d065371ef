// A tooltip: a box next to the pointer that explains a place in a figure.

import { h } from "../dom.js";

/** A tip inside `plot`; `show(x, y, content)` places it. */
export function tip(plot) {
  const box = h("div.tip", { "aria-hidden": "true", hidden: true });
  plot.append(box);
  return {
    show(x, y, content) {
      box.replaceChildren(...content);
      box.hidden = false;
      const right = x + box.offsetWidth + 14 > plot.clientWidth;
      const left = Math.max(0, right ? x - box.offsetWidth - 14 : x + 14);
      box.style.transform = `translate(${left}px, ${Math.max(0, y - box.offsetHeight - 10)}px)`;
    },
    hide() {
      box.hidden = true;
    },
  };
}
