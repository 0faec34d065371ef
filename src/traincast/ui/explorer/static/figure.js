// What every figure shares: a sentence, a drawing as wide as its place, a table of numbers, an SVG file.

import { button, byId, download, h, s, scroller, swap } from "./dom.js";

const COPIED = [ // properties that a file takes from the style of the page
  ...["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity"],
  ...["font-family", "font-size", "font-weight", "text-anchor"],
];
const MARGIN = 12; // around the drawing in a file
const LEAST = 150; // pixels; a narrower place, such as one that is just laid out for paper, is not drawn for
const KEY_ROW = 18; // height of a row of the colour key in a file

/** A figure of the page. `draw(data, width)` gives an SVG (or several elements), `says(data)` the sentence,
    `numbers(data)` the table. */
export class Figure {
  constructor(id, { draw, says, numbers }) {
    Object.assign(this, { id, draw, says, numbers, data: null, width: 0 });
    this.root = byId(id);
    const heading = this.root.querySelector("h2");
    this.title = heading.textContent;
    const label = { class: "link save", "aria-label": `SVG: download ${this.title}` };
    const save = button("SVG", () => this.save(), label);
    [this.plot, this.sentence] = [h("div.plot"), h("p.says")];
    this.details = h("details.numbers", { ontoggle: () => this.tabulate() }, h("summary", "As a table"));
    this.root.append(h("figcaption", heading, this.sentence, save), this.plot, this.details);
    new ResizeObserver(() => this.plot.clientWidth !== this.width && this.redraw()).observe(this.plot);
  }

  /** Show other data; null hides the figure. */
  show(data) {
    this.data = data;
    this.root.hidden = data === null;
    this.root.classList.remove("stale");
    if (data !== null) this.redraw();
  }

  /** Mark the drawing as that of an earlier question until the next `show`. */
  outdated() {
    this.root.classList.add("stale");
  }

  redraw() {
    this.width = this.plot.clientWidth;
    if (this.data === null || this.width < LEAST) return;
    const sentence = this.says(this.data);
    this.sentence.textContent = sentence;
    swap(this.plot, ...[this.draw(this.data, this.width)].flat());
    const drawing = this.plot.querySelector("svg");
    if (drawing) {
      if (!drawing.hasAttribute("role")) drawing.setAttribute("role", "img");
      drawing.setAttribute("aria-label", `${this.title}: ${sentence}`);
      const size = ["width", "height"].map((name) => drawing.getAttribute(name)).join(" ");
      drawing.setAttribute("viewBox", `0 0 ${size}`); // paper is narrower than the screen it was drawn for
    }
    this.tabulate();
  }

  tabulate() {
    if (!this.details.open || this.data === null) return;
    this.details.querySelector(".scroll")?.remove();
    this.details.append(scroller(`${this.title} as a table`, this.numbers(this.data)));
  }

  /** Save the drawing as a file that needs no stylesheet. */
  save() {
    const drawing = this.plot.querySelector("svg");
    if (drawing) download(`traincast-${this.id}.svg`, "image/svg+xml", standalone(drawing, this.title));
  }
}

/** The text of an SVG with its computed style as attributes, on the page's background. */
function standalone(drawing, title) {
  const copy = drawing.cloneNode(true);
  const originals = drawing.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, i) => {
    const look = getComputedStyle(originals[i]);
    if (look.display === "none") element.setAttribute("display", "none");
    for (const name of COPIED) element.setAttribute(name, look.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role"]) element.removeAttribute(name);
  });
  const [width, height] = ["width", "height"].map((name) => Number(drawing.getAttribute(name)));
  const key = keyRows(drawing.closest(".plot").querySelectorAll(".legend li"), height);
  const size = { width: width + 2 * MARGIN, height: height + 2 * MARGIN + KEY_ROW * key.length };
  const frame = { x: -MARGIN, y: -MARGIN, ...size };
  const fill = getComputedStyle(document.documentElement).backgroundColor;
  copy.prepend(s("title", title), s("rect", { ...frame, fill }));
  copy.append(...key);
  const attributes = { ...size, viewBox: Object.values(frame).join(" ") };
  for (const [name, value] of Object.entries(attributes)) copy.setAttribute(name, value);
  for (const name of ["class", "style"]) copy.removeAttribute(name);
  return new XMLSerializer().serializeToString(copy);
}

/** The colour key below a drawing, as SVG. */
function keyRows(items, height) {
  return [...items].map((item, i) => {
    const y = height + KEY_ROW * i;
    const { color } = getComputedStyle(item);
    const font = { "font-family": "system-ui, sans-serif", "font-size": 12, "text-anchor": "start", fill: color };
    const look = getComputedStyle(item.firstElementChild);
    const line = { stroke: look.borderTopColor, "stroke-width": look.borderTopWidth };
    const box = { x: 0, y: y + 8, width: 11, height: 11, rx: Math.min(6, parseFloat(look.borderRadius)) };
    const swatch =
      look.borderTopStyle === "dashed"
        ? s("line", { x1: 0, x2: 11, y1: y + 13, y2: y + 13, "stroke-dasharray": "4 3", ...line })
        : s("rect", { ...box, fill: look.backgroundColor, opacity: look.opacity, ...line });
    return s("g", swatch, s("text", { x: 18, y: y + 18, ...font }, item.textContent));
  });
}

/** A colour key: rows of `[class, words]`. */
export const legend = (rows) =>
  h("ul.legend", rows.map(([name, words]) => h("li", h("span", { class: `swatch ${name}` }), words)));
