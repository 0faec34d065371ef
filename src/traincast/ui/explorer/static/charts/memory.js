// Memory of every pipeline stage, component on component, against what the accelerator has.

import { s, table } from "../dom.js";
import { legend } from "../figure.js";
import { chance, gib, GIB, number } from "../format.js";
import { roundTicks } from "./ticks.js";

const HEIGHT = 250;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 22, 34];
const WIDEST = 160; // pixels of a bar
const MIN_SHARE = 0.002; // of the memory of a stage; smaller components are left out
const LABEL_ROOM = 26; // pixels that the number of a stage needs

const bytesOf = (device, name) => device.memory_by_component_bytes[name] ?? 0;
const words = ({ name, label }) => label ?? name;

/** The components that take memory on any stage. */
const used = (devices, components) =>
  components.filter(({ name }) =>
    devices.some((device) => bytesOf(device, name) > MIN_SHARE * device.memory_bytes),
  );

export function says({ devices, capacity, plan }) {
  const { memory_bytes: bytes, fits_probability: probability, verdict, memory_phase: phase } = plan;
  const fullest = devices.reduce((a, b) => (b.memory_bytes > a.memory_bytes ? b : a));
  const stage = devices.length > 1 ? `, most on stage ${fullest.stage} of 0 to ${devices.length - 1}` : "";
  const fits = bytes <= capacity ? `${gib(capacity - bytes)} to spare` : `${gib(bytes - capacity)} too much`;
  const likely = Number.isFinite(probability) ? `; ${chance(probability)} likely to fit` : "";
  const decides = verdict === "uncertain" ? ` Uncertain: measure one step; its peak is the ${phase}.` : "";
  return `${gib(bytes)} of ${gib(capacity)}${stage}: ${fits}${likely}.${decides}`;
}

export function draw({ devices, capacity, components }, width) {
  const most = Math.max(capacity, ...devices.map((device) => device.memory_bytes)) * 1.06;
  const y = (bytes) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / most);
  const step = (width - LEFT - RIGHT) / devices.length;
  const bar = Math.min(step * (devices.length > 24 ? 0.9 : 0.8), WIDEST);
  const parts = used(devices, components);
  const across = (bytes) => ({ x1: LEFT, x2: width - RIGHT, y1: y(bytes), y2: y(bytes) });
  const axis = roundTicks(most / GIB, 5).map((tick) => [
    s("line.axis", across(tick * GIB)),
    s("text.quiet.small", { x: LEFT - 8, y: y(tick * GIB) + 4, "text-anchor": "end" }, number(tick)),
  ]);
  const every = Math.ceil(LABEL_ROOM / step);
  const stages = devices.map((device, i) => {
    const box = { x: LEFT + i * step + (step - bar) / 2, width: bar };
    return stack(device, parts, box, y, i % every === 0);
  });
  const isOver = devices.some((device) => device.memory_bytes > capacity);
  const limit = { x: width - RIGHT, y: y(capacity) - 5, "text-anchor": "end" };
  const labels = [
    s(`line.capacity${isOver ? ".over" : ""}`, across(capacity)),
    s("text.small", limit, `capacity ${gib(capacity)}`),
    s("text.quiet.small", { x: LEFT - 8, y: 10, "text-anchor": "end" }, "GiB"),
    s("text.quiet.small", { x: LEFT, y: HEIGHT - 2 }, devices.length > 1 ? "stage" : "every rank"),
  ];
  const drawing = s("svg", { width, height: HEIGHT }, axis, stages, labels);
  return [drawing, legend(parts.map((part) => [`c-${part.name}`, words(part)]))];
}

function stack(device, parts, { x, width }, y, named) {
  let below = 0;
  const bars = parts.map(({ name, meaning }) => {
    const bytes = bytesOf(device, name);
    const [bottom, top] = [y(below), y(below + bytes)];
    below += bytes;
    const title = s("title", `stage ${device.stage}, ${meaning}: ${gib(bytes)}`);
    return s(`rect.part.c-${name}`, { x, width, y: top, height: Math.max(bottom - top, 0) }, title);
  });
  const place = { x: x + width / 2, y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" };
  return s("g", bars, named ? s("text.quiet.small", place, device.stage) : null);
}

export function numbers({ devices, components }) {
  const parts = used(devices, components);
  const rows = devices.map((device) => [
    String(device.stage),
    ...parts.map(({ name }) => number(bytesOf(device, name) / GIB)),
    number(device.memory_bytes / GIB),
  ]);
  const head = ["Stage", ...parts.map(words), "all [GiB]"];
  return table("Memory of each stage by component, in GiB", head, rows);
}
