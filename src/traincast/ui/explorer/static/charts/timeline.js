// The simulated pipeline: a row for each device, with passes, waits, and what follows the pipeline.

import { button, h, s, table } from "../dom.js";
import { legend } from "../figure.js";
import { number, percent, seconds } from "../format.js";
import { roundTicks } from "./ticks.js";

const [F, B, W, BW] = ["forward", "backward of inputs", "backward of weights", "backward"];
const KINDS = { F, B, W, BW, R: "recompute" };
const ZOOMS = [1, 4, 16];
const [LEFT, RIGHT, BOTTOM] = [58, 8, 26];
const LABEL_ROOM = 14; // pixels that the name of a stage needs
let zoom = 1;

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
  const rowHeight = Math.max(6, Math.min(26, 340 / trace.devices.length));
  const height = trace.devices.length * rowHeight + BOTTOM;
  const inner = (width - LEFT - RIGHT) * zoom;
  const begins = trace.devices.map((device) => device.begin);
  const begin = Math.min(...begins);
  const end = Math.max(...begins) + Math.max(trace.simulated_seconds, trace.step_seconds);
  const x = (time) => Math.min((time - begin) / (end - begin), 1) * inner;
  const shape = { trace, x, rowHeight, durations: durations(trace), begin, perPixel: (end - begin) / inner };
  const ticks = roundTicks(end - begin, 6 * zoom).map((time) => {
    const place = { x: LEFT + x(begin + time), y: height - 6, "text-anchor": time ? "middle" : "start" };
    return s("text.quiet.small", place, time ? seconds(time) : "0");
  });
  const bars = s("g", { transform: `translate(${LEFT},0)` }, passes(shape));
  const drawing = s("svg", { width: inner + LEFT + RIGHT, height }, ticks, stageNames(shape), bars);
  const region = { tabindex: 0, role: "region", "aria-label": "Pipeline timeline, scrolls sideways" };
  const scroller = h("div.scroll", zoom > 1 ? region : {}, drawing);
  explainUnderPointer(scroller, drawing, shape);
  return [zoomButtons(data.redraw), scroller, key(trace)];
}

function stageNames({ trace: { devices }, rowHeight }) {
  const every = Math.ceil(LABEL_ROOM / rowHeight);
  return devices
    .filter((_, i) => i % every === 0)
    .map(({ stage }) => {
      const place = { x: LEFT - 8, y: (stage + 0.5) * rowHeight + 4, "text-anchor": "end" };
      return s("text.quiet.small", place, devices.length > 1 ? `stage ${stage + 1}` : "all");
    });
}

/** One path for each kind of pass: thousands of bars are a few elements. */
function passes({ trace, x, rowHeight, durations }) {
  const paths = {};
  const down = `v${(rowHeight - 2).toFixed(1)}`;
  const bar = (name, row, start, duration) => {
    const [from, to] = [x(start), x(start + duration)];
    const length = to - from - (to - from > 2.5 ? 0.5 : 0);
    const corner = `${from.toFixed(2)},${(row * rowHeight + 1).toFixed(1)}`;
    paths[name] = `${paths[name] ?? ""}M${corner}h${length.toFixed(2)}${down}H${from.toFixed(2)}z`;
  };
  trace.devices.forEach((device, row) => {
    for (const [kind, chunk, , start] of device.passes) {
      const isOdd = Math.floor(chunk / trace.pp) % 2;
      bar(`path.pass.p-${trace.kinds[kind]}${isOdd ? ".odd" : ""}`, row, start, durations[chunk][kind]);
    }
    for (const [component, start, duration] of device.waits)
      if (component === "pp_comm") bar("path.pass.c-pp_comm", row, start, duration);
    for (const { component, start, seconds: duration } of trace.after)
      bar(`path.pass.${component ? `c-${component}` : "p-none"}`, row, device.begin + start, duration);
  });
  const lane = { x: 0, width: x(Infinity), height: rowHeight - 2 };
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

function key(trace) {
  const after = trace.after.map(({ component, name }) => [component ? `c-${component}` : "p-none", name]);
  const hasTransfers = trace.devices.some(({ waits }) => waits.some(([name]) => name === "pp_comm"));
  const transfers = hasTransfers ? [["c-pp_comm", "wait for a transfer"]] : [];
  const passes = trace.kinds.map((kind) => [`p-${kind}`, KINDS[kind] ?? kind]);
  const later = trace.vp > 1 ? [["p-F odd", "lighter: every second chunk"]] : [];
  return legend([...passes, ...later, ...transfers, ...new Map(after)]);
}

/** Put a box beside the pointer, inside the window. */
function place(box, x, y) {
  const left = x + box.offsetWidth + 14 > innerWidth ? x - box.offsetWidth - 14 : x + 14;
  box.style.transform = `translate(${Math.max(0, left)}px, ${Math.max(0, y - box.offsetHeight - 10)}px)`;
}

/** Show the pass under the pointer. */
function explainUnderPointer(scroller, drawing, { trace, rowHeight, durations, begin, perPixel }) {
  const box = h("div.tip", { "aria-hidden": "true", hidden: true });
  scroller.append(box);
  drawing.addEventListener("pointermove", (event) => {
    const frame = drawing.getBoundingClientRect();
    const time = begin + (event.clientX - frame.left - LEFT) * perPixel;
    const device = trace.devices[Math.floor((event.clientY - frame.top) / rowHeight)];
    const runs = ([kind, chunk, , start]) => start <= time && time < start + durations[chunk][kind];
    const pass = device?.passes.find(runs);
    box.hidden = !pass;
    if (!pass) return;
    const [kind, chunk, microbatch, start] = pass;
    const name = KINDS[trace.kinds[kind]] ?? trace.kinds[kind];
    const times = `${seconds(durations[chunk][kind])} from ${seconds(start, 4)}`;
    const title = h("strong", `${name} of micro-batch ${microbatch + 1}`);
    box.replaceChildren(title, `stage ${device.stage + 1}, chunk ${chunk + 1}: ${times}`);
    place(box, event.clientX, event.clientY);
  });
  drawing.addEventListener("pointerleave", () => (box.hidden = true));
}

export function numbers({ trace }) {
  const isRelevant = (name) =>
    trace.devices.some((device) => device.totals_seconds[name] > 1e-4 * trace.step_seconds);
  const components = Object.keys(trace.totals_seconds).filter(isRelevant);
  const cells = (device) => components.map((name) => number(device.totals_seconds[name]));
  const rows = trace.devices.map((device) => [String(device.stage + 1), ...cells(device)]);
  const head = ["Stage", ...components.map((name) => name.replaceAll("_", " "))];
  return table("Seconds by component on each device", head, rows);
}
