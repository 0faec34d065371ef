// What every figure shares: a sentence that says it, a drawing as wide as there is room, its numbers as a table, and its SVG as a file.

import { download, h, s, swap } from "./dom.js";

const COPIED = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "fill-opacity",
];

/** A figure of the page. `draw(data, width)` gives an SVG (or several elements), `says(data)` the sentence, `numbers(data)` the table. */
export class Figure {
  constructor(id, { draw, says, numbers }) {
    Object.assign(this, { id, draw, says, numbers, data: null, width: 0 });
    this.root = document.getElementById(id);
    this.plot = this.root.querySelector(".plot");
    const title = this.root.querySelector("h2").textContent;
    const save = h(
      "button",
      { type: "button", class: "link save", "aria-label": `Download ${title} as SVG`, onclick: () => this.save() },
      "SVG",
    );
    this.details = h("details", { class: "numbers", ontoggle: () => this.tabulate() }, h("summary", {}, "As a table"));
    this.root.querySelector("figcaption").append(save);
    this.root.append(this.details);
    new ResizeObserver(() => this.plot.clientWidth !== this.width && this.redraw()).observe(this.plot);
  }

  /** Show other data; null takes the figure off the page. */
  show(data) {
    this.data = data;
    this.root.hidden = data === null;
    this.root.classList.remove("stale");
    if (data !== null) this.redraw();
  }

  /** What is drawn is of an earlier question until the next `show`. */
  outdated() {
    this.root.classList.add("stale");
  }

  redraw() {
    this.width = this.plot.clientWidth;
    if (this.data === null || !this.width) return;
    const said = this.says(this.data);
    this.root.querySelector(".says").textContent = said;
    swap(this.plot, ...[this.draw(this.data, this.width)].flat());
    const drawing = this.plot.querySelector("svg");
    if (drawing && !drawing.hasAttribute("role")) drawing.setAttribute("role", "img");
    drawing?.setAttribute("aria-label", `${this.root.querySelector("h2").textContent}: ${said}`);
    this.tabulate();
  }

  tabulate() {
    if (!this.details.open || this.data === null) return;
    this.details.querySelector(".scroll")?.remove();
    this.details.append(h("div", { class: "scroll" }, this.numbers(this.data)));
  }

  /** The drawing as a file that needs no stylesheet. */
  save() {
    const drawing = this.plot.querySelector("svg");
    if (drawing)
      download(`traincast-${this.id}.svg`, "image/svg+xml", standalone(drawing, this.root.querySelector("h2").textContent));
  }
}

/** The text of an SVG whose look is written into it, on the page's ground. */
export function standalone(drawing, title) {
  const copy = drawing.cloneNode(true);
  const originals = drawing.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, i) => {
    const look = getComputedStyle(originals[i]);
    if (look.display === "none") element.setAttribute("display", "none");
    for (const name of COPIED) element.setAttribute(name, look.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role"]) element.removeAttribute(name);
  });
  const [width, height] = ["width", "height"].map((name) => Number(drawing.getAttribute(name)));
  const key = keyRows(drawing.parentElement.querySelectorAll(".legend li"), height);
  const frame = { x: -12, y: -12, width: width + 24, height: height + 24 + 18 * key.length };
  copy.prepend(s("title", {}, title), s("rect", { ...frame, fill: getComputedStyle(document.documentElement).backgroundColor }));
  copy.append(...key);
  for (const name of ["width", "height"]) copy.setAttribute(name, frame[name]);
  copy.setAttribute("viewBox", Object.values(frame).join(" "));
  for (const name of ["class", "style"]) copy.removeAttribute(name);
  return new XMLSerializer().serializeToString(copy);
}

/** The colour key below a drawing, drawn. */
function keyRows(items, height) {
  return [...items].map((item, i) => {
    const look = { "font-family": "system-ui, sans-serif", "font-size": 12, fill: getComputedStyle(item).color };
    return s(
      "g",
      {},
      s("rect", {
        x: 0,
        y: height + 8 + 18 * i,
        width: 11,
        height: 11,
        fill: getComputedStyle(item.firstElementChild).backgroundColor,
      }),
      s("text", { x: 18, y: height + 18 + 18 * i, ...look }, item.textContent),
    );
  });
}

/** A colour key: rows of `[class, words]`. */
export function legend(rows) {
  return h(
    "ul",
    { class: "legend" },
    rows.map(([name, words]) => h("li", {}, h("span", { class: `swatch ${name}` }), words)),
  );
}
