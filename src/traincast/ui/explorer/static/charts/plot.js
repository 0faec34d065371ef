// Observable Plot, loaded behind the first drawing, and without its <style> elements: the page forbids those.

let loading = null;

function script(path) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    const onerror = () => reject(new Error(`${path} is missing`));
    Object.assign(element, { src: path, async: false, onload: resolve, onerror });
    document.head.append(element);
  });
}

/** Load the library, once. */
export function load() {
  loading ??= Promise.all([script("/static/vendor/d3.min.js"), script("/static/vendor/plot.min.js")]);
  return loading;
}

/** A drawing of marks; `Plot` and `d3` are global once loaded. */
export function plotted(options) {
  const drawing = globalThis.Plot.plot({ ...options, style: { background: "none", color: "inherit" } });
  drawing.querySelectorAll("style").forEach((element) => element.remove());
  return drawing;
}

/** A logarithmic axis with a line and a number at every tick; Plot's own leaves some numbers out. */
export function logAxis(label, ticks, text) {
  const { Plot } = globalThis;
  return [Plot.gridY(ticks), Plot.axisY(ticks, { text, tickSize: 0, label, labelArrow: "none" })];
}
