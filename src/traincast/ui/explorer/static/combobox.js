// A field that finds one of many names as one types: the editable combobox with a list in groups of WAI-ARIA 1.2.

import { h } from "./dom.js";

/** Letters, digits and spaces alone: `llama3 70b` finds llama-3-70b. */
const plain = (text) => text.toLowerCase().replace(/[^a-z0-9 ]/g, "");

/** Letters and digits of several names, one after the other. */
const joined = (names) => names.map((name) => plain(name).replaceAll(" ", "")).join(" ");

export class Combobox {
  /** Make one of an input beside an empty list. `groups` are `{label, options}`, an option is
      `{name, title, also}`; `choose(name)` is called with what the reader chooses, "" where nothing is. */
  constructor(input, groups, choose) {
    Object.assign(this, { input, choose, chosen: "", shown: [], active: -1 });
    this.list = document.getElementById(input.getAttribute("aria-controls"));
    this.groups = groups.map(({ label, options }) => ({
      label,
      options: options.map((option) => ({ ...option, words: joined([option.name, option.title, ...option.also]) })),
    }));
    const listeners = {
      input: () => this.open(input.value),
      click: () => this.isOpen || this.browse(),
      focus: () => input.select(),
      blur: () => this.close(),
      keydown: (event) => this.press(event),
    };
    for (const [name, listener] of Object.entries(listeners)) input.addEventListener(name, listener);
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the focus stays in the input
    this.list.addEventListener("click", ({ target }) => {
      const at = this.shown.findIndex(({ element }) => element.contains(target));
      if (at >= 0) this.take(this.shown[at].name);
    });
  }

  get isOpen() {
    return this.input.getAttribute("aria-expanded") === "true";
  }

  /** Show what is chosen, unless the reader is typing. */
  show(name) {
    this.chosen = name;
    if (!this.isOpen) this.input.value = name;
  }

  /** List all options, from what is chosen on. */
  browse() {
    this.open();
    this.point(this.shown.findIndex(({ name }) => name === this.chosen));
  }

  /** List the options that a text finds, all without one. */
  open(text = "") {
    const words = plain(text).split(" ").filter(Boolean);
    const matches = ({ words: all }) => words.every((word) => all.includes(word));
    this.shown = [];
    const groups = this.groups.map(({ label, options }) => this.group(label, options.filter(matches)));
    const none = h("p.says", "Nothing in the list has this name. Enter asks for it as it stands.");
    this.list.replaceChildren(...groups.filter(Boolean));
    if (!this.shown.length) this.list.replaceChildren(none);
    this.list.hidden = false;
    this.list.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-expanded", "true");
    this.point(this.best(text));
  }

  group(label, options) {
    if (!options.length) return null;
    const made = options.map(({ name, title, also }) => {
      const id = `${this.list.id}-${this.shown.length}`;
      const isChosen = String(name === this.chosen);
      const element = h("div.choice", { id, role: "option", "aria-selected": isChosen }, name, h("small", title));
      this.shown.push({ name, also, element });
      return element;
    });
    return h("div", { role: "group", "aria-label": label }, h("div.of", { "aria-hidden": "true" }, label), made);
  }

  /** The option that a text means most likely: one of that name, one that begins so, else the first. Without a
      text, none. */
  best(text) {
    const wanted = joined([text]);
    if (!wanted) return -1;
    const names = this.shown.map(({ name, also }) => [name, ...also].map((one) => joined([one])));
    const exact = names.findIndex((of) => of.includes(wanted));
    if (exact >= 0) return exact;
    const begun = names.findIndex((of) => of.some((name) => name.startsWith(wanted)));
    return begun >= 0 ? begun : Math.min(0, names.length - 1);
  }

  /** Make an option the one that Enter takes. */
  point(at) {
    this.shown[this.active]?.element.classList.remove("active");
    this.active = at;
    const { element } = this.shown[at] ?? {};
    element?.classList.add("active");
    element?.scrollIntoView({ block: "nearest" });
    if (element) this.input.setAttribute("aria-activedescendant", element.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  press(event) {
    const { key } = event;
    const step = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (step) {
      event.preventDefault();
      if (!this.isOpen) this.browse();
      else if (this.shown.length) this.point((this.active + step + this.shown.length) % this.shown.length);
    } else if (this.isOpen && key === "Escape") {
      event.preventDefault();
      this.close();
    } else if (this.isOpen && key === "Enter") {
      event.preventDefault();
      this.take(this.shown[this.active]?.name ?? this.input.value.trim());
    }
  }

  /** Hide the list; a text that was not taken goes. */
  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.point(-1);
    this.input.value = this.chosen;
  }

  take(name) {
    const isNew = name !== this.chosen && (name !== "" || !this.input.required);
    if (!isNew) return this.close();
    this.chosen = name;
    this.close();
    this.choose(name);
  }
}
