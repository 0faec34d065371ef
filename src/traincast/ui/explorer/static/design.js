// Which machine to build or buy for this job: machines around this one, at the prices of parts.

import { button, byId, h, scroller, table } from "./dom.js";
import { legend } from "./figure.js";
import { days, large, percent, whole } from "./format.js";
import { ask, cancel, Refused } from "./server.js";
import { watch } from "./waiting.js";
import { logAxis, Plot, plotted } from "./charts/plot.js";
import { logTicks } from "./charts/ticks.js";

const PATH = "/api/design";
const COLOURS = { machine: "var(--blue)", cheapest: "var(--vermilion)", page: "currentColor" };
const MARGINS = { marginLeft: 62, marginRight: 24, marginTop: 26, marginBottom: 38 };
const LABEL_ROOM = 100; // pixels that a time needs
let asked = null; // the question that is answered, as text

/** Offer a search for a question; the answer to an earlier one goes. */
export function renew(body) {
  if (JSON.stringify(body) === asked) return;
  asked = null;
  cancel(PATH);
  byId("design-body").replaceChildren(button("Search machines", () => search(body)));
}

async function search(body) {
  const key = (asked = JSON.stringify(body));
  const show = (...content) => asked === key && byId("design-body").replaceChildren(...content);
  const [far, again] = [h("span"), () => ((asked = null), renew(body))];
  const says = h("span", { role: "status" }, "Searching the machines …");
  show(h("div.tools", h("progress", { "aria-label": "Machines" }), says, far, button("Cancel", again)));
  const count = ({ candidates }) => candidates && (far.textContent = `${whole(candidates)} candidates`);
  const stop = watch(body, count, "machines");
  try {
    const answer = await ask(PATH, body);
    if (answer) show(...shown(answer, byId("design-body").clientWidth));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show(h("p.error", { role: "alert" }, error.message));
  } finally {
    stop();
  }
}

function shown({ sentences, front, machines, tokens }, width) {
  const cost = (value) => `$${large(value)}`;
  const rows = front.map((row) => [
    row.name,
    days(row.days),
    cost(row.cost),
    `${large(1000 * row.energy_kwh)}Wh`,
    percent(row.regret),
    row.plan,
  ]);
  const head = ["Machine", "Time", "Cost", "Energy", "Worst regret", "Plan"];
  const about = `A run of ${large(tokens)} tokens. No other machine is as good in time, cost and energy:`;
  const key = [
    ["dot c-compute", "a machine"],
    ["dot c-recomputation", "the cheapest"],
    ["dot c-optimizer_step", "this machine"],
  ];
  return [
    h("div.plot", chart(machines, width), legend(key)),
    h("p.says", about),
    scroller("Table of the front", table("Front of time, cost and energy", head, rows, { class: "of-plans" })),
    h("ul", sentences.map((sentence) => h("li", sentence))),
  ];
}

function chart(machines, width) {
  const [times, costs] = ["days", "cost"].map((name) => machines.map((row) => row[name]));
  const domain = (values) => [Math.min(...values) / 1.15, Math.max(...values) * 1.15];
  const [across, up] = [domain(times), domain(costs)];
  const room = (LABEL_ROOM / width) * Math.log(across[1] / across[0]);
  const far = (tick, kept) => !kept.length || Math.log(tick / kept.at(-1)) > room;
  const ticks = logTicks(...across).reduce((kept, tick) => (far(tick, kept) ? [...kept, tick] : kept), []);
  return plotted({
    width,
    height: 300,
    ...MARGINS,
    x: { type: "log", domain: across, axis: null },
    y: { type: "log", domain: up, axis: null },
    r: { type: "identity" },
    marks: [
      logAxis("↑ cost [$]", logTicks(...up), (value) => large(value)),
      Plot.axisX(ticks, { text: (value) => days(value), tickSize: 0, label: "time →", labelArrow: "none" }),
      Plot.dot(machines, { x: "days", y: "cost", r: (row) => (row.kind === "machine" ? 3 : 5), fill: (row) => COLOURS[row.kind] }),
    ],
  });
}
