// The simulated pipeline: a row for each device, with passes, waits, and what follows the pipeline.

import { button, h, s, scroller, table } from "../dom.js";
import { legend } from "../figure.js";
import { number, percent, seconds } from "../format.js";
import { roundTicks } from "./ticks.js";

const [F, B, W, BW] = ["forward", "backward of inputs", "backward of weights", "backward"];
const KINDS = { F, B, W, BW, R: "recompute" };
const ZOOMS = [1, 4, 16];
const [LEFT, RIGHT, BOTTOM] = [58, 8, 26];
const LABEL_ROOM = 14; // pixels that the name of a stage needs
const NARROW = 4; // pixels; below it the passes of a column this wide are drawn as shares of its time
const paper = matchMedia("print"); // which has no room for more than the whole step
let zoom = 1;
const shownZoom = () => (paper.matches ? 1 : zoom);

/** Duration of a pass by chunk and kind [s]. */
function durations({ chunks, kinds }) {
  const sum = (parts = {}) => Object.values(parts).reduce((a, b) => a + b, 0);
  return chunks.map(({ passes }) => kinds.map((kind) => sum(passes[kind])));
}

export function says({ trace }) {
  const { totals_seconds: totals, step_seconds: step, pp, vp, microbatches, schedule } = trace;
  const waits = totals.bubble ?? 0;
  const devices = `${pp} ${pp === 1 ? "device" : "devices"}`;
  const chunks = vp > 1 ? `, ${vp} chunks each` : "";
  const share = `${seconds(waits)} (${percent(waits / step)}) of ${seconds(step)}`;
  const pipeline = `${schedule}, ${devices}, ${microbatches} micro-batches${chunks}`;
  return `${pipeline}: the slowest device waits ${share} for the pipeline.`;
}

export function draw(data, width) {
  const { trace } = data;
  const zoom = shownZoom();
  const rowHeight = Math.max(6, Math.min(26, 340 / trace.devices.length));
  const height = trace.devices.length * rowHeight + BOTTOM;
  const inner = (width - LEFT - RIGHT) * zoom;
  const begins = trace.devices.map((device) => device.begin);
  const begin = Math.min(...begins);
  const end = Math.max(...begins) + Math.max(trace.simulated_seconds, trace.step_seconds);
  const x = (time) => Math.min((time - begin) / (end - begin), 1) * inner;
  const shape = { trace, x, rowHeight, durations: durations(trace), begin, perPixel: (end - begin) / inner };
  shape.isNarrow = meanPass(shape) < NARROW;
  const ticks = roundTicks(end - begin, 6 * zoom).map((time) => {
    const place = { x: LEFT + x(begin + time), y: height - 6, "text-anchor": time ? "middle" : "start" };
    return s("text.quiet.small", place, time ? seconds(time) : "0");
  });
  const bars = s("g", { transform: `translate(${LEFT},0)` }, passes(shape));
  const drawing = s("svg", { width: inner + LEFT + RIGHT, height }, ticks, stageNames(shape), bars);
  paper.onchange = data.redraw;
  const frame = scroller("Pipeline timeline, scrolls sideways", drawing);
  explainUnderPointer(frame, drawing, shape);
  const hint = "Passes are too narrow to be seen here: the height of a colour is its share of the time. Zoom in to see them.";
  return [zoomButtons(data.redraw), frame, key(shape), ...(shape.isNarrow ? [h("p.hint", hint)] : [])];
}

/** Width of a pass, on average [pixel]. */
function meanPass({ trace: { devices }, durations, perPixel }) {
  const all = devices.flatMap(({ passes }) => passes.map(([kind, chunk]) => durations[chunk][kind]));
  return all.reduce((sum, duration) => sum + duration, 0) / all.length / perPixel;
}

function stageNames({ trace: { devices }, rowHeight }) {
  const every = Math.ceil(LABEL_ROOM / rowHeight);
  return devices
    .filter((_, i) => i % every === 0)
    .map(({ stage }) => {
      const place = { x: LEFT - 8, y: (stage + 0.5) * rowHeight + 4, "text-anchor": "end" };
      return s("text.quiet.small", place, devices.length > 1 ? `stage ${stage}` : "all");
    });
}

/** What a device does: `[class, start, seconds]`. */
function* runs(device, { trace, durations, isNarrow }) {
  for (const [kind, chunk, , start] of device.passes) {
    const isLighter = !isNarrow && Math.floor(chunk / trace.pp) % 2;
    yield [`p-${trace.kinds[kind]}${isLighter ? ".odd" : ""}`, start, durations[chunk][kind]];
  }
  for (const [component, start, duration] of device.waits)
    if (component === "pp_comm") yield ["c-pp_comm", start, duration];
  for (const { component, start, seconds: duration } of trace.after)
    yield [component ? `c-${component}` : "p-none", device.begin + start, duration];
}

/** Pixels of each column of a device by class, as far as its runs fill them. */
function columns(device, shape) {
  const filled = {};
  for (const [name, start, duration] of runs(device, shape)) {
    const [from, to] = [shape.x(start), shape.x(start + duration)];
    const pixels = (filled[name] ??= []);
    for (let i = Math.floor(from / NARROW); i * NARROW < to; i += 1)
      pixels[i] = (pixels[i] ?? 0) + Math.min(to, (i + 1) * NARROW) - Math.max(from, i * NARROW);
  }
  return Object.entries(filled);
}

/** One path for each kind of pass: thousands of bars are a few elements. */
function passes(shape) {
  const { trace, x, rowHeight } = shape;
  const paths = {};
  const height = rowHeight - 2;
  const bar = (name, left, top, wide, high) => {
    const corner = `${left.toFixed(2)},${top.toFixed(2)}`;
    const path = `M${corner}h${wide.toFixed(2)}v${high.toFixed(2)}H${left.toFixed(2)}z`;
    paths[`path.pass.${name}`] = `${paths[`path.pass.${name}`] ?? ""}${path}`;
  };
  trace.devices.forEach((device, row) => {
    const top = row * rowHeight + 1;
    if (!shape.isNarrow)
      for (const [name, start, duration] of runs(device, shape)) {
        const wide = x(start + duration) - x(start);
        bar(name, x(start), top, wide - (wide > 2.5 ? 0.5 : 0), height);
      }
    else {
      const bottoms = [];
      for (const [name, pixels] of columns(device, shape))
        pixels.forEach((filled, i) => {
          const high = (height * filled) / NARROW;
          bottoms[i] = (bottoms[i] ?? top + height) - high;
          bar(name, i * NARROW, bottoms[i], NARROW, high);
        });
    }
  });
  const lane = { x: 0, width: x(Infinity), height };
  const lanes = trace.devices.map((_, row) => s("rect.lane", { ...lane, y: row * rowHeight + 1 }));
  return [...lanes, ...Object.entries(paths).map(([name, d]) => s(name, { d }))];
}

function zoomButtons(redraw) {
  const buttons = ZOOMS.map((times) => {
    const state = { "aria-pressed": String(times === zoom), "data-key": `zoom ${times}` };
    return button(`${times}×`, () => ((zoom = times), redraw()), state);
  });
  return h("div.tools.zoom", { role: "group", "aria-label": "Zoom" }, buttons);
}

function key({ trace, isNarrow }) {
  const after = trace.after.map(({ component, name }) => [component ? `c-${component}` : "p-none", name]);
  const hasTransfers = trace.devices.some(({ waits }) => waits.some(([name]) => name === "pp_comm"));
  const transfers = hasTransfers ? [["c-pp_comm", "wait for a transfer"]] : [];
  const passes = trace.kinds.map((kind) => [`p-${kind}`, KINDS[kind] ?? kind]);
  const later = trace.vp > 1 && !isNarrow ? [["p-F odd", "lighter: every second chunk"]] : [];
  return legend([...passes, ...later, ...transfers, ...new Map(after), ["idle", "waits for other stages"]]);
}

/** Put a box beside the pointer, inside the window. */
function place(box, x, y) {
  const left = x + box.offsetWidth + 14 > innerWidth ? x - box.offsetWidth - 14 : x + 14;
  box.style.transform = `translate(${Math.max(0, left)}px, ${Math.max(0, y - box.offsetHeight - 10)}px)`;
}

/** Show the pass under the pointer. */
function explainUnderPointer(frame, drawing, { trace, rowHeight, durations, begin, perPixel }) {
  const box = h("div.tip", { "aria-hidden": "true", hidden: true });
  frame.append(box);
  drawing.addEventListener("pointermove", (event) => {
    const frame = drawing.getBoundingClientRect();
    const time = begin + (event.clientX - frame.left - LEFT) * perPixel;
    const device = trace.devices[Math.floor((event.clientY - frame.top) / rowHeight)];
    const isAt = ([kind, chunk, , start]) => start <= time && time < start + durations[chunk][kind];
    const pass = device?.passes.find(isAt);
    box.hidden = !pass;
    if (!pass) return;
    const [kind, chunk, microbatch, start] = pass;
    const name = KINDS[trace.kinds[kind]] ?? trace.kinds[kind];
    const times = `${seconds(durations[chunk][kind])} from ${seconds(start, 4)}`;
    const title = h("strong", `${name} of micro-batch ${microbatch}`);
    box.replaceChildren(title, `stage ${device.stage}, chunk ${chunk}: ${times}`);
    place(box, event.clientX, event.clientY);
  });
  drawing.addEventListener("pointerleave", () => (box.hidden = true));
}

export function numbers({ trace }) {
  const isRelevant = (name) =>
    trace.devices.some((device) => device.totals_seconds[name] > 1e-4 * trace.step_seconds);
  const components = Object.keys(trace.totals_seconds).filter(isRelevant);
  const cells = (device) => components.map((name) => number(device.totals_seconds[name]));
  const rows = trace.devices.map((device) => [String(device.stage), ...cells(device)]);
  const head = ["Stage", ...components.map((name) => name.replaceAll("_", " "))];
  return table("Seconds by component on each device", head, rows);
}
