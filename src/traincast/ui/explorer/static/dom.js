// Elements in one call each. Nothing here writes markup from text: what comes from the server is always text.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element, `tag.class`: attributes, if any (`on…` are listeners), then children, of which null is
    left out. */
export const h = (name, ...content) => element(name, content, (tag) => document.createElement(tag));

/** An SVG element, with the same arguments as `h`. */
export const s = (name, ...content) => element(name, content, (tag) => document.createElementNS(SVG, tag));

function element(name, [first, ...rest], create) {
  const [tag, ...classes] = name.split(".");
  const [attributes, children] = first?.constructor === Object ? [first, rest] : [{}, [first, ...rest]];
  const made = create(tag);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if ((value ?? false) !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(2).filter((child) => (child ?? null) !== null));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** A button. */
export const button = (text, onclick, attributes = {}) =>
  h("button", { type: "button", onclick, ...attributes }, text);

/** A table with a caption for those who cannot see it; the first cell of a row is its header. */
export function table(caption, head, rows, attributes = {}) {
  const isCell = (content) => content instanceof HTMLTableCellElement;
  const cell = (content, i) =>
    isCell(content) ? content : i ? h("td", content) : h("th", { scope: "row" }, content);
  const named = (content) => (content ? h("th", { scope: "col" }, content) : h("td"));
  const heads = head.map((content) => (isCell(content) ? content : named(content)));
  const body = rows.map((cells) => h("tr", cells.map(cell)));
  return h("table", attributes, h("caption.hidden", caption), h("thead", h("tr", heads)), h("tbody", body));
}

/** What scrolls sideways where it is too wide, with the keyboard, too. */
export const scroller = (label, ...content) =>
  h("div.scroll", { tabindex: 0, role: "region", "aria-label": label }, ...content);

/** A choice of a list. */
export const option = (value, words = value) => h("option", { value: String(value) }, String(words));

/** Replace the children of an element; the focus stays on the element of the same `data-key`. */
export function swap(parent, ...children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...children);
  if (key) parent.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

/** Save text as a file of the reader's. */
export function download(name, type, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
