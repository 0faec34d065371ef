// The pipeline as the event simulation runs it: a row for each device, passes, waits, and what follows the pipeline.

import { h, s, table } from "../dom.js";
import { legend } from "../figure.js";
import { number, percent, seconds } from "../format.js";
import { roundTicks } from "./ticks.js";
import { tip } from "./tip.js";

const KINDS = { F: "forward", B: "backward of inputs", W: "backward of weights", BW: "backward", R: "forward again" };
const ZOOMS = [1, 4, 16];
const LEFT = 54;
let zoom = 1;

const lengths = (trace) =>
  trace.chunks.map((chunk) => trace.kinds.map((kind) => Object.values(chunk.passes[kind] ?? {}).reduce((a, b) => a + b, 0)));

export const says = ({ trace }) => {
  const waits = trace.totals_seconds.bubble ?? 0;
  const many = `${trace.pp} ${trace.pp === 1 ? "device" : "devices"}, ${trace.microbatches} micro-batches${trace.vp > 1 ? `, ${trace.vp} chunks each` : ""}`;
  return `${trace.schedule}, ${many}: the slowest device waits ${seconds(waits)} (${percent(waits / trace.step_seconds)}) of ${seconds(trace.step_seconds)} for the pipeline.`;
};

export function draw(data, width) {
  const { trace } = data;
  const rowHeight = Math.max(6, Math.min(26, 340 / trace.devices.length));
  const height = trace.devices.length * rowHeight + 26;
  const inner = (width - LEFT - 8) * zoom;
  const begin = Math.min(...trace.devices.map((one) => one.begin));
  const end = Math.max(...trace.devices.map((one) => one.begin)) + Math.max(trace.simulated_seconds, trace.step_seconds);
  const x = (time) => Math.min((time - begin) / (end - begin), 1) * inner;
  const shape = { trace, x, rowHeight, lasts: lengths(trace) };
  const drawing = s(
    "svg",
    { width: inner + LEFT + 8, height },
    ticks(begin, end, x, height),
    rows(shape),
    s("g", { transform: `translate(${LEFT},0)` }, passes(shape)),
  );
  const scroller = h(
    "div",
    {
      class: "scroll",
      tabindex: zoom > 1 ? 0 : null,
      role: zoom > 1 ? "region" : null,
      "aria-label": zoom > 1 ? "Pipeline timeline, scrolls sideways" : null,
    },
    drawing,
  );
  pointed(scroller, drawing, shape, begin, (end - begin) / inner);
  return [zooms(data), scroller, key(trace)];
}

function ticks(begin, end, x, height) {
  return roundTicks(end - begin, 6 * zoom).map((time) =>
    s(
      "text",
      { class: "quiet small", x: LEFT + x(begin + time), y: height - 6, "text-anchor": time ? "middle" : "start" },
      time ? seconds(time) : "0",
    ),
  );
}

function rows({ trace, rowHeight }) {
  const every = Math.ceil(14 / rowHeight);
  return trace.devices
    .filter((_, i) => i % every === 0)
    .map(({ stage }) =>
      s(
        "text",
        { class: "quiet small", x: LEFT - 8, y: stage * rowHeight + rowHeight / 2 + 4, "text-anchor": "end" },
        trace.devices.length > 1 ? `stage ${stage + 1}` : "all",
      ),
    );
}

/** One path for each kind of pass: thousands of bars are a few elements. */
function passes({ trace, x, rowHeight, lasts }) {
  const paths = {};
  const bar = (name, row, start, length) => {
    const [from, to] = [x(start), x(start + length)];
    const gap = to - from > 2.5 ? 0.5 : 0;
    paths[name] =
      `${paths[name] ?? ""}M${from.toFixed(2)},${(row * rowHeight + 1).toFixed(1)}h${(to - from - gap).toFixed(2)}v${(rowHeight - 2).toFixed(1)}H${from.toFixed(2)}z`;
  };
  trace.devices.forEach((device, row) => {
    for (const [kind, chunk, , start] of device.passes)
      bar(`pass p-${trace.kinds[kind]}${Math.floor(chunk / trace.pp) % 2 ? " odd" : ""}`, row, start, lasts[chunk][kind]);
    for (const [component, start, length] of device.waits) if (component === "pp_comm") bar("pass c-pp_comm", row, start, length);
    for (const { component, start, seconds: length } of trace.after)
      bar(`pass ${component ? `c-${component}` : "p-none"}`, row, device.begin + start, length);
  });
  const lanes = trace.devices.map((_, row) =>
    s("rect", { class: "lane", x: 0, width: x(Infinity), y: row * rowHeight + 1, height: rowHeight - 2 }),
  );
  return [...lanes, ...Object.entries(paths).map(([name, d]) => s("path", { class: name, d }))];
}

function zooms(data) {
  const buttons = ZOOMS.map((times) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(times === zoom),
        "data-key": `zoom ${times}`,
        onclick: () => ((zoom = times), data.again()),
      },
      `${times}×`,
    ),
  );
  return h("div", { class: "tools zoom", role: "group", "aria-label": "Zoom" }, buttons);
}

function key(trace) {
  const after = new Map(trace.after.filter(({ component }) => component).map(({ component, name }) => [component, name]));
  return legend([
    ...trace.kinds.map((kind) => [`p-${kind}`, KINDS[kind] ?? kind]),
    ...[...after].map(([component, name]) => [`c-${component}`, name]),
  ]);
}

/** What runs under the pointer. */
function pointed(scroller, drawing, { trace, rowHeight, lasts }, begin, perPixel) {
  let box = null;
  drawing.addEventListener("pointermove", (event) => {
    box ??= tip(scroller.parentElement);
    const frame = drawing.getBoundingClientRect();
    const time = begin + (event.clientX - frame.left - LEFT) * perPixel;
    const device = trace.devices[Math.floor((event.clientY - frame.top) / rowHeight)];
    const pass = device?.passes.find(([kind, chunk, , start]) => start <= time && time < start + lasts[chunk][kind]);
    if (!pass) return box.hide();
    const [kind, chunk, micro, start] = pass;
    const words = [
      h("strong", {}, `${KINDS[trace.kinds[kind]] ?? trace.kinds[kind]} of micro-batch ${micro + 1}`),
      `stage ${device.stage + 1}, chunk ${chunk + 1}: ${seconds(lasts[chunk][kind])} from ${seconds(start, 4)}`,
    ];
    return box.show(event.clientX - scroller.getBoundingClientRect().left, event.clientY - frame.top + scroller.offsetTop, words);
  });
  drawing.addEventListener("pointerleave", () => box?.hide());
}

export function numbers({ trace }) {
  const components = Object.keys(trace.totals_seconds).filter((name) =>
    trace.devices.some((one) => one.totals_seconds[name] > 1e-4 * trace.step_seconds),
  );
  const told = trace.devices.map((one) => [String(one.stage + 1), ...components.map((name) => number(one.totals_seconds[name]))]);
  return table("Seconds by component on each device", ["Stage", ...components.map((name) => name.replaceAll("_", " "))], told);
}
