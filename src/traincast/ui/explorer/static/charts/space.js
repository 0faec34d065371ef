// The design space: time against memory of the layouts that fit, the Pareto front, the recommended and the pinned plans.

import { samePlan } from "../address.js";
import { s, table } from "../dom.js";
import { legend } from "../figure.js";
import { gib, GIB, number, seconds, whole } from "../format.js";
import { logAxis, Plot, plotted } from "./plot.js";
import { logTicks } from "./ticks.js";

const HEIGHT = 400;
const NEAR = 40; // pixels from the pointer to the plan it is at
const COLOURS = { "1d": "blue", ring: "purple", ulysses: "green", hybrid: "brown" }; // summa, context: orange
const STRATEGIES = { "all-gather": "context", ring: "ring", ulysses: "ulysses", hybrid: "hybrid" };
const KINDS = ["tp_kind", "cp_kind"]; // said by the strategy
const KEYS = { ArrowRight: -1, ArrowUp: -1, ArrowLeft: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };

const points = ({ step_seconds: times, memory_bytes: bytes, plan }) =>
  times.map((time, i) => ({ time, memory: bytes[i] / GIB, knobs: plan[i], strategy: strategyOf(plan[i]) }));

/** Plans slower than this are not drawn: beyond the front's slowest there is nothing to choose. */
const slowest = (front) => Math.max(1.5 * front[0].time, ...front.map(({ time }) => time)) * 1.1;

const strategyOf = ({ tp_kind: tp, cp_kind: cp }) => (tp === "summa" ? "summa" : (STRATEGIES[cp] ?? "1d"));

export function says({ answer, space, pareto }) {
  const fitting = `${whole(space.step_seconds.length)} of ${whole(answer.feasible)} plans that fit`;
  const front = `${pareto.step_seconds.length} on the Pareto front of time and memory`;
  const help = "Click a plan to pin it, or walk along the front with the arrow keys and press Enter.";
  return `${fitting}; ${front}. ${help}`;
}

export function draw({ answer, space, pareto, pins, pinned, toggle }, width) {
  const front = points(pareto);
  const cloud = points(space).filter(({ time }) => time <= slowest(front));
  const all = [...front, ...cloud];
  const capacity = answer.system.capacity_bytes / GIB;
  const [low, high] = [Math.min(...all.map(({ time }) => time)) * 0.97, slowest(front)];
  const place = { x: "memory", y: "time" };
  const under = { ...place, maxRadius: NEAR, frameAnchor: "left" };
  const title = (plan) => `${seconds(plan.time, 4)} · ${gib(plan.memory * GIB)}\n${words(plan)}`;
  const box = { fill: "var(--ground)", stroke: "var(--strong)", lineWidth: 24, lineHeight: 1.4, title };
  const colour = ({ strategy }) => `var(--${COLOURS[strategy] ?? "orange"})`;
  const x = { domain: [0, capacity * 1.02], ticks: Math.max(4, width / 90), tickSize: 0, labelArrow: "none" };
  const drawing = plotted({
    width,
    height: HEIGHT,
    marginLeft: 52,
    marginBottom: 40,
    x: { ...x, label: "memory of the fullest rank [GiB] →", labelAnchor: "right" },
    y: { type: "log", domain: [low, high], axis: null },
    marks: [
      logAxis("↑ time of a step [s]", logTicks(low, high), (value) => number(value)),
      Plot.ruleX([capacity], { className: "capacity" }),
      Plot.text([`capacity ${gib(answer.system.capacity_bytes)}`], {
        x: [capacity], frameAnchor: "top", textAnchor: "end", dx: -6, dy: 2, stroke: "var(--ground)", fill: "var(--ink)",
      }),
      Plot.dot(cloud, { ...place, r: 2.5, fill: colour, fillOpacity: 0.55 }),
      Plot.line(front, { ...place, curve: "step-before", className: "front" }),
      Plot.dot(all, Plot.pointer({ ...under, r: 7, className: "halo" })),
      Plot.tip(all, Plot.pointer({ ...under, ...box })),
    ],
  });
  drawing.addEventListener("click", () => drawing.value && toggle(drawing.value.knobs));
  const [left, top] = ["x", "y"].map((name) => drawing.scale(name).apply);
  const at = (plan) => ({ cx: left(plan.memory), cy: top(plan.time) });
  const buttons = front.map((plan, i) => frontButton(plan, i, at(plan), pins));
  const pin = (i) => () => toggle(front[i].knobs);
  buttons.forEach((button, i) => listenToKeys(button, i, { buttons, drawing, pin: pin(i) }));
  const marked = [[answer.plans[0], "recommended", "★"], ...pinned.map((pin, i) => [pin?.plan, `pinned-${"ab"[i]}`, "AB"[i]])];
  const marks = marked.map(([plan, name, letter]) =>
    plan?.fits ? [mark(left(plan.memory_bytes / GIB), top(plan.step_seconds), name, letter)] : [],
  );
  drawing.setAttribute("role", "group");
  drawing.querySelector(".front").after(...buttons, ...marks.flat());
  const strategies = [...new Set(cloud.map(({ strategy }) => strategy))];
  const key = strategies.map((name) => [`dot s-${name}`, name]);
  return [drawing, legend([...key, ["dot open", "Pareto front"], ["dot s-front", "its fastest plan"], ["dot s-front", "★ recommended plan"], ["dashed", "capacity of a GPU"]])];
}

function frontButton(plan, i, place, pins) {
  return s(`circle.point${i ? "" : ".first"}`, {
    ...place,
    r: i ? 3.5 : 5,
    role: "button",
    tabindex: i ? -1 : 0,
    "data-key": `front ${i}`,
    "aria-pressed": String(pins.some((pin) => samePlan(pin, plan.knobs))),
    "aria-label": `${seconds(plan.time)}, ${gib(plan.memory * GIB)}: ${words(plan)}`,
  });
}

/** One stop for the tab key; arrows walk along the front, Enter or Space pins. */
function listenToKeys(button, i, { buttons, drawing, pin }) {
  const point = (type) => {
    const { x, y, width, height } = button.getBoundingClientRect();
    const place = { clientX: x + width / 2, clientY: y + height / 2, pointerType: "mouse" };
    drawing.dispatchEvent(new PointerEvent(type, place));
  };
  button.addEventListener("focus", () => {
    buttons.forEach((other) => other.setAttribute("tabindex", other === button ? 0 : -1));
    point("pointermove");
  });
  button.addEventListener("blur", () => point("pointerleave"));
  button.addEventListener("keydown", (event) => {
    if (event.key in KEYS) buttons[Math.min(Math.max(i + KEYS[event.key], 0), buttons.length - 1)].focus();
    else if (event.key === "Enter" || event.key === " ") pin();
    else return;
    event.preventDefault();
  });
}

const mark = (x, y, name, letter) =>
  s("g", s(`circle.${name}`, { cx: x, cy: y, r: 8 }), s("text.letter", { x, y: y + 3.5 }, letter));

function words({ knobs, strategy }) {
  const values = Object.entries(knobs).filter(([name]) => !KINDS.includes(name));
  return [strategy, ...values.map(([name, value]) => `${name}=${value}`)].join(" ");
}

export function numbers({ pareto }) {
  const row = (plan, i) => [String(i + 1), number(plan.time, 4), number(plan.memory), words(plan)];
  const head = ["#", "Step [s]", "Memory [GiB]", "Plan"];
  return table("Plans on the Pareto front", head, points(pareto).map(row), { class: "of-plans" });
}
