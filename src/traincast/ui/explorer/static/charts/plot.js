// Observable Plot, loaded when the first figure wants it, and without the <style> it puts into drawings: the page forbids those.

let loading = null;

function script(path) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    Object.assign(element, { src: path, async: false, onload: resolve, onerror: () => reject(new Error(`${path} is missing`)) });
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
