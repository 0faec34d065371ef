// Memory of the fullest rank over a step, and of every pipeline stage, against what the accelerator has.

import { s, table } from "../dom.js";
import { legend } from "../figure.js";
import { chance, gib, GIB, number } from "../format.js";
import { roundTicks } from "./ticks.js";

const HEIGHT = 260;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 22, 52];
const WIDEST = 160; // pixels of a bar
const MIN_SHARE = 0.002; // of the memory of a stage; smaller components are left out
const NARROW = 60; // pixels of a phase, below which its name is shortened
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

/** The fullest rank over a step and, of a pipeline, every stage at its peak, below each other. */
export function draw({ devices, phases, capacity, components }, width) {
  const parts = used([...devices, ...phases], components);
  const most = Math.max(capacity, ...devices.map((device) => device.memory_bytes)) * 1.06;
  const isOver = devices.some((device) => device.memory_bytes > capacity);
  const panel = { parts, most, capacity, isOver, width };
  const stages = devices.length > 1 ? s("g", { transform: `translate(0 ${HEIGHT})` }, ...bars(devices, panel)) : null;
  const height = stages ? 2 * HEIGHT : HEIGHT;
  const drawing = s("svg", { width, height }, areas(phases, panel), stages);
  return [drawing, legend(parts.map((part) => [`c-${part.name}`, words(part)]))];
}

const yOf = (bytes, most) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / most);

/** The axis of a panel, its grid, and the line of what the accelerator has. */
function frame({ most, capacity, isOver, width }) {
  const across = (bytes) => ({ x1: LEFT, x2: width - RIGHT, y1: yOf(bytes, most), y2: yOf(bytes, most) });
  const axis = roundTicks(most / GIB, 5).map((tick) => [
    s("line.axis", across(tick * GIB)),
    s("text.quiet.small", { x: LEFT - 8, y: yOf(tick * GIB, most) + 4, "text-anchor": "end" }, number(tick)),
  ]);
  const limit = { x: width - RIGHT, y: yOf(capacity, most) - 5, "text-anchor": "end" };
  const labels = [
    s(`line.capacity${isOver ? ".over" : ""}`, across(capacity)),
    s("text.small", limit, `capacity ${gib(capacity)}`),
    s("text.quiet.small", { x: LEFT - 8, y: 10, "text-anchor": "end" }, "GiB"),
  ];
  return { axis, labels };
}

/** Memory of the fullest rank in every phase of a step, a level for each; between two it is drawn straight. */
function areas(phases, panel) {
  const { parts, most, width } = panel;
  const { axis, labels } = frame(panel);
  const step = (width - LEFT - RIGHT) / phases.length;
  const ends = (i) => [0.1, 0.9].map((share) => LEFT + (i + share) * step);
  const edge = (heights) => phases.flatMap((_, i) => ends(i).map((x) => `${x},${yOf(heights[i], most)}`));
  let below = phases.map(() => 0);
  const drawn = parts.map(({ name, meaning }) => {
    const above = below.map((bytes, i) => bytes + bytesOf(phases[i], name));
    const points = [...edge(below), ...edge(above).reverse()].join(" ");
    below = above;
    return s(`polygon.part.c-${name}`, { points }, s("title", meaning));
  });
  const peak = phases.reduce((a, b) => (b.memory_bytes > a.memory_bytes ? b : a));
  const names = phases.map(({ phase, memory_bytes: bytes }, i) => {
    const x = LEFT + (i + 0.5) * step;
    const lines = split(step < NARROW ? shortened(phase) : phase, Math.max(Math.floor(step / 6.5), 6));
    const spans = lines.map((line, k) => s("tspan", { x, dy: k ? 12 : 0 }, line));
    const place = { x, y: HEIGHT - BOTTOM + 13, "text-anchor": "middle" };
    const isPeak = phases[i] === peak;
    const top = { x, y: yOf(bytes, most) - 4, "text-anchor": "middle" };
    return [
      s(isPeak ? "text.small" : "text.quiet.small", place, spans),
      isPeak ? s("text.small", top, `peak ${gib(bytes)}`) : null,
    ];
  });
  return s("g", axis, drawn, labels, names);
}

const shortened = (phase) => phase.replace("backward", "backw.").replace("reduction", "sum").replace("optimizer", "optim.");

/** A phase's name in lines of at most some characters. */
function split(text, most) {
  return text.split(" ").reduce((lines, word) => {
    const longer = `${lines.at(-1) ?? ""} ${word}`.trim();
    return lines.length && longer.length <= most ? [...lines.slice(0, -1), longer] : [...lines, word];
  }, []);
}

function bars(devices, panel) {
  const { parts, most, width } = panel;
  const { axis, labels } = frame(panel);
  const step = (width - LEFT - RIGHT) / devices.length;
  const bar = Math.min(step * (devices.length > 24 ? 0.9 : 0.8), WIDEST);
  const every = Math.ceil(LABEL_ROOM / step);
  const stages = devices.map((device, i) => {
    const box = { x: LEFT + i * step + (step - bar) / 2, width: bar };
    return stack(device, parts, box, (bytes) => yOf(bytes, most), i % every === 0);
  });
  const name = s("text.quiet.small", { x: LEFT, y: HEIGHT - 2 }, "stage");
  return [axis, stages, labels, name];
}

function stack(device, parts, { x, width }, y, named) {
  let below = 0;
  const drawn = parts.map(({ name, meaning }) => {
    const bytes = bytesOf(device, name);
    const [bottom, top] = [y(below), y(below + bytes)];
    below += bytes;
    const title = s("title", `stage ${device.stage}, ${meaning}: ${gib(bytes)}`);
    return s(`rect.part.c-${name}`, { x, width, y: top, height: Math.max(bottom - top, 0) }, title);
  });
  const place = { x: x + width / 2, y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" };
  return s("g", drawn, named ? s("text.quiet.small", place, device.stage) : null);
}

export function numbers({ devices, phases, components }) {
  const parts = used([...devices, ...phases], components);
  const cells = (name, row) => [
    name,
    ...parts.map((part) => number(bytesOf(row, part.name) / GIB)),
    number(row.memory_bytes / GIB),
  ];
  const rows = [
    ...phases.map((phase) => cells(phase.phase, phase)),
    ...(devices.length > 1 ? devices.map((device) => cells(`stage ${device.stage}`, device)) : []),
  ];
  const head = ["Phase or stage", ...parts.map(words), "all [GiB]"];
  return table("Memory of the fullest rank in each phase, and of each stage, in GiB", head, rows);
}
