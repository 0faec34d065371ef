// Memory of every pipeline stage, component on component, against what the accelerator has.

import { s, table } from "../dom.js";
import { legend } from "../figure.js";
import { gib, GIB, number } from "../format.js";
import { roundTicks } from "./ticks.js";

const HEIGHT = 250;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 22, 34];

/** The components that take any memory on any stage. */
function held(devices, components) {
  return components.filter(({ name }) =>
    devices.some((one) => (one.memory_by_component_bytes[name] ?? 0) > 0.002 * one.memory_bytes),
  );
}

const words = ({ name, label }) => label ?? name;

export const says = ({ devices, capacity, plan }) => {
  const fullest = devices.reduce((a, b) => (b.memory_bytes > a.memory_bytes ? b : a));
  const where = devices.length > 1 ? `, most on stage ${fullest.stage + 1} of ${devices.length}` : "";
  const rest = capacity - plan.memory_bytes;
  const fits = rest >= 0 ? `${gib(rest)} to spare` : `${gib(-rest)} too much`;
  const likely =
    plan.fits_probability === undefined || plan.fits_probability === null
      ? ""
      : `; fits with ${number(100 * plan.fits_probability, 2)} % probability`;
  return `${gib(plan.memory_bytes)} of ${gib(capacity)}${where}: ${fits}${likely}.`;
};

export function draw({ devices, capacity, components }, width) {
  const most = Math.max(capacity, ...devices.map((one) => one.memory_bytes)) * 1.06;
  const inner = width - LEFT - RIGHT;
  const y = (bytes) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / most);
  const step = Math.min(inner / devices.length, 72);
  const bar = step * (devices.length > 24 ? 0.9 : 0.72);
  const parts = held(devices, components);
  const axis = roundTicks(most / GIB, 5).map((tick) =>
    s(
      "g",
      {},
      s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(tick * GIB), y2: y(tick * GIB) }),
      s("text", { class: "quiet small", x: LEFT - 8, y: y(tick * GIB) + 4, "text-anchor": "end" }, number(tick)),
    ),
  );
  const every = Math.ceil(26 / step);
  const stages = devices.map((one, i) => stack(one, parts, LEFT + i * step + (step - bar) / 2, bar, y, i % every === 0));
  const over = devices.some((one) => one.memory_bytes > capacity);
  const drawing = s(
    "svg",
    { width, height: HEIGHT },
    axis,
    stages,
    s("line", { class: `capacity${over ? " over" : ""}`, x1: LEFT, x2: width - RIGHT, y1: y(capacity), y2: y(capacity) }),
    s("text", { class: "small", x: width - RIGHT, y: y(capacity) - 5, "text-anchor": "end" }, `capacity ${gib(capacity)}`),
    s("text", { class: "quiet small", x: LEFT - 8, y: 10, "text-anchor": "end" }, "GiB"),
    s("text", { class: "quiet small", x: LEFT, y: HEIGHT - 2 }, devices.length > 1 ? "stage" : "every rank"),
  );
  return [drawing, legend(parts.map((part) => [`c-${part.name}`, words(part)]))];
}

function stack(device, parts, x, width, y, named) {
  let below = 0;
  const bars = parts.map(({ name, meaning }) => {
    const bytes = device.memory_by_component_bytes[name] ?? 0;
    const bar = s(
      "rect",
      { class: `part c-${name}`, x, width, y: y(below + bytes), height: Math.max(y(below) - y(below + bytes), 0) },
      s("title", {}, `stage ${device.stage + 1}, ${meaning}: ${gib(bytes)}`),
    );
    below += bytes;
    return bar;
  });
  const label = named
    ? s("text", { class: "quiet small", x: x + width / 2, y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, device.stage + 1)
    : null;
  return s("g", {}, bars, label);
}

export function numbers({ devices, components }) {
  const parts = held(devices, components);
  const rows = devices.map((one) => [
    String(one.stage + 1),
    ...parts.map(({ name }) => number((one.memory_by_component_bytes[name] ?? 0) / GIB)),
    number(one.memory_bytes / GIB),
  ]);
  return table("Memory of each stage by component, in GiB", ["Stage", ...parts.map(words), "all [GiB]"], rows);
}
