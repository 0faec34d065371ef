// The design space: time against memory of the layouts that fit, the Pareto front, and the plans that are pinned.

import { samePlan } from "../address.js";
import { h, s, table } from "../dom.js";
import { legend } from "../figure.js";
import { gib, GIB, number, seconds, whole } from "../format.js";
import { logAxis, plotted } from "./plot.js";
import { logTicks } from "./ticks.js";
import { tip } from "./tip.js";

const HEIGHT = 400;
const NEAR = 40;

const points = ({ step_seconds: times, memory_bytes: bytes, plan }) =>
  times.map((time, i) => ({ time, memory: bytes[i] / GIB, knobs: plan[i], strategy: strategyOf(plan[i]) }));

/** Plans slower than this are not drawn: beyond the front's slowest there is nothing to choose. */
const slowest = (front) => Math.max(1.5 * front[0].time, ...front.map((one) => one.time)) * 1.1;

function strategyOf({ tp_kind: tp, cp_kind: cp }) {
  if (tp === "summa") return "summa";
  return { "all-gather": "context", ring: "ring", ulysses: "ulysses", hybrid: "hybrid" }[cp] ?? "1d";
}

export const says = ({ answer }) => {
  const front = answer.pareto.step_seconds.length;
  return `${whole(answer.space.step_seconds.length)} of ${whole(answer.feasible)} plans that fit; ${front} on the Pareto front of time and memory. Click a plan to pin it, or walk along the front with the arrow keys and press Enter.`;
};

export function draw({ answer, pins, pinned, toggle }, width) {
  const front = points(answer.pareto);
  const everything = points(answer.space).filter((one) => one.time <= slowest(front));
  const all = [...everything, ...front];
  const capacity = answer.system.capacity_bytes / GIB;
  const [low, high] = [Math.min(...all.map((one) => one.time)) * 0.97, slowest(front)];
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
      globalThis.Plot.ruleX([capacity], { className: "capacity" }),
      globalThis.Plot.dot(everything, {
        x: "memory",
        y: "time",
        r: 2.5,
        fill: (one) => `var(--s-${one.strategy})`,
        fillOpacity: 0.55,
      }),
      globalThis.Plot.line(front, { x: "memory", y: "time", curve: "step-before", className: "front" }),
    ],
  });
  interactive(drawing, { everything, front, pins, pinned, toggle });
  const strategies = [...new Set(everything.map((one) => one.strategy))];
  return [drawing, legend([...strategies.map((name) => [`dot s-${name}`, name]), ["dot s-front", "Pareto front"]])];
}

/** Points of the front as buttons, the pinned plans, and what happens under the pointer. */
function interactive(drawing, { everything, front, pins, pinned, toggle }) {
  const [x, y] = ["x", "y"].map((name) => drawing.scale(name).apply);
  const placed = [...front, ...everything].map((one) => ({ ...one, x: x(one.memory), y: y(one.time) }));
  const halo = s("circle", { class: "halo", r: 7, visibility: "hidden" });
  const buttons = placed.slice(0, front.length).map((one, i) =>
    s("circle", {
      class: `point${i ? "" : " first"}`,
      cx: one.x,
      cy: one.y,
      r: i ? 3.5 : 5,
      role: "button",
      tabindex: i ? -1 : 0,
      "data-key": `front ${i}`,
      "aria-pressed": String(pins.some((pin) => samePlan(pin, one.knobs))),
      "aria-label": `${seconds(one.time)}, ${gib(one.memory * GIB)}: ${words(one)}`,
    }),
  );
  const marks = pinned.map((one, i) => one?.plan?.fits && pinMark(x(one.plan.memory_bytes / GIB), y(one.plan.step_seconds), i));
  drawing.setAttribute("role", "group");
  drawing.append(...buttons, ...marks.filter(Boolean), halo);
  const told = { tip: null, point: null };
  const at = (one) => {
    told.tip ??= tip(drawing.parentElement);
    told.point = one;
    halo.setAttribute("visibility", one ? "visible" : "hidden");
    if (!one) return told.tip.hide();
    halo.setAttribute("cx", one.x);
    halo.setAttribute("cy", one.y);
    return told.tip.show(one.x, one.y, [
      h("strong", {}, `${seconds(one.time, 4)} · ${gib(one.memory * GIB)}`),
      h("span", { class: "mono" }, words(one)),
    ]);
  };
  const nearest = globalThis.d3.Delaunay.from(
    placed,
    (one) => one.x,
    (one) => one.y,
  );
  drawing.addEventListener("pointermove", (event) => at(near(placed, nearest, globalThis.d3.pointer(event, drawing))));
  drawing.addEventListener("pointerleave", () => at(null));
  drawing.addEventListener("click", (event) => {
    const one = near(placed, nearest, globalThis.d3.pointer(event, drawing));
    if (one) toggle(one.knobs);
  });
  keys(buttons, placed, at, toggle);
}

function near(placed, nearest, [x, y]) {
  const one = placed[nearest.find(x, y)];
  return one && Math.hypot(one.x - x, one.y - y) < NEAR ? one : null;
}

/** One stop for the tab key; arrows walk along the front, Enter or Space pins. */
function keys(buttons, placed, at, toggle) {
  const go = (i) => {
    const to = buttons[Math.min(Math.max(i, 0), buttons.length - 1)];
    to.focus();
  };
  buttons.forEach((button, i) => {
    button.addEventListener("focus", () => {
      buttons.forEach((one) => one.setAttribute("tabindex", one === button ? 0 : -1));
      at(placed[i]);
    });
    button.addEventListener("blur", () => at(null));
    button.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i - 1, ArrowUp: i - 1, ArrowLeft: i + 1, ArrowDown: i + 1, Home: 0, End: buttons.length - 1 }[
        event.key
      ];
      if (to !== undefined) go(to);
      else if (event.key === "Enter" || event.key === " ") toggle(placed[i].knobs);
      else return;
      event.preventDefault();
    });
  });
}

function pinMark(x, y, i) {
  const letter = "AB"[i];
  return s(
    "g",
    {},
    s("circle", { class: `pinned-${letter.toLowerCase()}`, cx: x, cy: y, r: 8 }),
    s("text", { class: "letter", x, y: y + 3.5 }, letter),
  );
}

const words = ({ knobs, strategy }) =>
  `${strategy} ${Object.entries(knobs)
    .filter(([name]) => !["tp_kind", "cp_kind"].includes(name))
    .map(([name, value]) => `${name}=${value}`)
    .join(" ")}`;

export function numbers({ answer }) {
  const rows = points(answer.pareto).map((one, i) => [String(i + 1), number(one.time, 4), number(one.memory), words(one)]);
  return table("Plans on the Pareto front", ["#", "Step [s]", "Memory [GiB]", "Plan"], rows);
}
