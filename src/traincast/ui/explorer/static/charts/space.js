// The design space: time against memory of the layouts that fit, the Pareto front, and the pinned plans.

import { samePlan } from "../address.js";
import { h, s, table } from "../dom.js";
import { legend } from "../figure.js";
import { gib, GIB, number, seconds, whole } from "../format.js";
import { logAxis, plotted } from "./plot.js";
import { logTicks } from "./ticks.js";
import { tip } from "./tip.js";

const HEIGHT = 400;
const NEAR = 40; // pixels from the pointer to the plan it is at
const STRATEGIES = { "all-gather": "context", ring: "ring", ulysses: "ulysses", hybrid: "hybrid" };
const KINDS = ["tp_kind", "cp_kind"]; // said by the strategy
const KEYS = { ArrowRight: -1, ArrowUp: -1, ArrowLeft: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };

const points = ({ step_seconds: times, memory_bytes: bytes, plan }) =>
  times.map((time, i) => ({ time, memory: bytes[i] / GIB, knobs: plan[i], strategy: strategyOf(plan[i]) }));

/** Plans slower than this are not drawn: beyond the front's slowest there is nothing to choose. */
const slowest = (front) => Math.max(1.5 * front[0].time, ...front.map(({ time }) => time)) * 1.1;

function strategyOf({ tp_kind: tp, cp_kind: cp }) {
  return tp === "summa" ? "summa" : (STRATEGIES[cp] ?? "1d");
}

export function says({ answer }) {
  const fitting = `${whole(answer.space.step_seconds.length)} of ${whole(answer.feasible)} plans that fit`;
  const front = `${answer.pareto.step_seconds.length} on the Pareto front of time and memory`;
  const help = "Click a plan to pin it, or walk along the front with the arrow keys and press Enter.";
  return `${fitting}; ${front}. ${help}`;
}

export function draw({ answer, pins, pinned, toggle }, width) {
  const { Plot } = globalThis;
  const front = points(answer.pareto);
  const cloud = points(answer.space).filter(({ time }) => time <= slowest(front));
  const capacity = answer.system.capacity_bytes / GIB;
  const low = Math.min(...[...cloud, ...front].map(({ time }) => time)) * 0.97;
  const high = slowest(front);
  const place = { x: "memory", y: "time" };
  const colour = ({ strategy }) => `var(--s-${strategy})`;
  const drawing = plotted({
    width,
    height: HEIGHT,
    marginLeft: 52,
    marginBottom: 40,
    x: {
      label: "memory of the fullest rank [GiB] →",
      domain: [0, capacity * 1.02],
      ticks: Math.max(4, width / 90),
      tickSize: 0,
      labelArrow: "none",
      labelAnchor: "right",
    },
    y: { type: "log", domain: [low, high], axis: null },
    marks: [
      logAxis("↑ time of a step [s]", logTicks(low, high), (value) => number(value)),
      Plot.ruleX([capacity], { className: "capacity" }),
      Plot.dot(cloud, { ...place, r: 2.5, fill: colour, fillOpacity: 0.55 }),
      Plot.line(front, { ...place, curve: "step-before", className: "front" }),
    ],
  });
  interact(drawing, { cloud, front, pins, pinned, toggle });
  const strategies = [...new Set(cloud.map(({ strategy }) => strategy))];
  const key = strategies.map((name) => [`dot s-${name}`, name]);
  return [drawing, legend([...key, ["dot s-front", "Pareto front"]])];
}

/** Add the points of the front as buttons, the pinned plans, and what happens under the pointer. */
function interact(drawing, { cloud, front, pins, pinned, toggle }) {
  const { d3 } = globalThis;
  const [x, y] = ["x", "y"].map((name) => drawing.scale(name).apply);
  const placed = [...front, ...cloud].map((plan) => ({ ...plan, x: x(plan.memory), y: y(plan.time) }));
  const halo = s("circle.halo", { r: 7, visibility: "hidden" });
  const buttons = placed.slice(0, front.length).map((plan, i) => frontButton(plan, i, pins));
  const marks = pinned.map((pin, i) => {
    const plan = pin?.plan;
    return plan?.fits ? pinMark(x(plan.memory_bytes / GIB), y(plan.step_seconds), i) : null;
  });
  drawing.setAttribute("role", "group");
  drawing.append(...buttons, ...marks.filter(Boolean), halo);
  let box = null;
  const show = (plan) => {
    box ??= tip(drawing.parentElement);
    halo.setAttribute("visibility", plan ? "visible" : "hidden");
    if (!plan) return box.hide();
    halo.setAttribute("cx", plan.x);
    halo.setAttribute("cy", plan.y);
    const figures = h("strong", `${seconds(plan.time, 4)} · ${gib(plan.memory * GIB)}`);
    return box.show(plan.x, plan.y, [figures, h("span.mono", words(plan))]);
  };
  const triangles = d3.Delaunay.from(placed, (plan) => plan.x, (plan) => plan.y);
  const nearest = (event) => {
    const [left, top] = d3.pointer(event, drawing);
    const plan = placed[triangles.find(left, top)];
    return plan && Math.hypot(plan.x - left, plan.y - top) < NEAR ? plan : null;
  };
  drawing.addEventListener("pointermove", (event) => show(nearest(event)));
  drawing.addEventListener("pointerleave", () => show(null));
  drawing.addEventListener("click", (event) => {
    const plan = nearest(event);
    if (plan) toggle(plan.knobs);
  });
  buttons.forEach((button, i) => listenToKeys(button, i, { buttons, plan: placed[i], show, toggle }));
}

function frontButton(plan, i, pins) {
  return s(`circle.point${i ? "" : ".first"}`, {
    cx: plan.x,
    cy: plan.y,
    r: i ? 3.5 : 5,
    role: "button",
    tabindex: i ? -1 : 0,
    "data-key": `front ${i}`,
    "aria-pressed": String(pins.some((pin) => samePlan(pin, plan.knobs))),
    "aria-label": `${seconds(plan.time)}, ${gib(plan.memory * GIB)}: ${words(plan)}`,
  });
}

/** One stop for the tab key; arrows walk along the front, Enter or Space pins. */
function listenToKeys(button, i, { buttons, plan, show, toggle }) {
  button.addEventListener("focus", () => {
    buttons.forEach((other) => other.setAttribute("tabindex", other === button ? 0 : -1));
    show(plan);
  });
  button.addEventListener("blur", () => show(null));
  button.addEventListener("keydown", (event) => {
    if (event.key in KEYS) buttons[Math.min(Math.max(i + KEYS[event.key], 0), buttons.length - 1)].focus();
    else if (event.key === "Enter" || event.key === " ") toggle(plan.knobs);
    else return;
    event.preventDefault();
  });
}

function pinMark(x, y, i) {
  const letter = "AB"[i];
  const circle = s(`circle.pinned-${letter.toLowerCase()}`, { cx: x, cy: y, r: 8 });
  return s("g", circle, s("text.letter", { x, y: y + 3.5 }, letter));
}

function words({ knobs, strategy }) {
  const values = Object.entries(knobs).filter(([name]) => !KINDS.includes(name));
  return [strategy, ...values.map(([name, value]) => `${name}=${value}`)].join(" ");
}

export function numbers({ answer }) {
  const rows = points(answer.pareto).map((plan, i) => [
    String(i + 1),
    number(plan.time, 4),
    number(plan.memory),
    words(plan),
  ]);
  return table("Plans on the Pareto front", ["#", "Step [s]", "Memory [GiB]", "Plan"], rows);
}
