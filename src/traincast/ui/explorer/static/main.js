// The explorer: a question in the form and in the address, its answer drawn. The latest answer wins.

import { blank, question, samePlan, write } from "./address.js";
import { brief, certainty, headline, nearest, sentence } from "./answer.js";
import * as memoryChart from "./charts/memory.js";
import * as timeChart from "./charts/time.js";
import { button, byId, swap } from "./dom.js";
import { Figure } from "./figure.js";
import { quarterGibs } from "./format.js";
import { ask, cancel, look, Refused } from "./server.js";
import * as theme from "./theme.js";

const SETTLED = 120; // milliseconds without a change after which the slower figures are asked for
const STALE = 250; // milliseconds after which a search under way is given up for a newer one
const SLOWER = ["/api/explain", "/api/scaling", "/api/timeline"]; // questions that follow a search
const MODULES = [
  ...["questions", "machine", "plans", "compare", "rejected", "take", "problems", "dialog", "waiting"],
];
const CHARTS = ["space", "scaling", "sensitivity", "timeline"];

const first = JSON.parse(byId("first").textContent || "null");
const now = {
  catalog: first.catalog,
  model: first.model,
  system: first.system,
  state: blank({ ...first.state, ...first.page }),
  answer: null,
  pinned: [], // answers on the pinned plans
  turn: 0,
};
const figures = { time: new Figure("time", timeChart), memory: new Figure("memory", memoryChart) };
const later = {}; // modules and figures that the first drawing does not need
let [frame, searching, searchBegin, timer] = [null, null, 0, 0];

const address = () => write(now.state, now.catalog);

/** Go on once the drawing is on the screen. */
const painted = () => new Promise((then) => requestAnimationFrame(() => setTimeout(then)));

/** Change fields of the question; `settled` is false while a slider moves. */
function change(patch, settled = true) {
  const before = address();
  now.state = blank({ ...now.state, ...(typeof patch === "function" ? patch(now.state) : patch) });
  now.changed = performance.now();
  if (settled && address() !== location.search) history.pushState(now.state, "", address());
  if (address() !== before) renew();
}

const changeFigures = (values) => change({ figures: { ...now.state.figures, ...values } });

const setBusy = (isBusy) => byId("main").setAttribute("aria-busy", String(isBusy));

/** Search once for all changes of a frame; a slow search under way gives way to a newer one. */
function renew() {
  now.turn += 1;
  setBusy(true);
  clearTimeout(timer);
  cancel(...SLOWER);
  later.questions?.render(now.state, null, now.catalog);
  if (now.system) later.machine?.render(now.state, now.system);
  if (frame) return;
  frame = requestAnimationFrame(async () => {
    const giveUp = new Promise((then) => setTimeout(then, searchBegin + STALE - performance.now()));
    await Promise.race([searching, giveUp]);
    frame = null;
    searching = search();
  });
}

async function search() {
  const { state, changed, turn } = now;
  searchBegin = performance.now();
  later.waiting.begin(question(state), announce);
  try {
    const isKnown = state.system === now.system?.name;
    const [answer, system] = await Promise.all([
      ask("/api/search", question(state), { name: "search", onBusy: later.problems.wait }),
      isKnown ? null : look(`/api/system?name=${encodeURIComponent(state.system)}`),
    ]);
    if (answer === null) return;
    if (system && state.system === now.state.system) useSystem(system);
    later.problems.clear();
    draw(answer);
    await painted();
    if (changed) performance.measure("answer", { start: changed, end: performance.now() });
    if (answer === now.answer) drawRest();
  } catch (error) {
    showRefusal(error);
  } finally {
    if (turn === now.turn) {
      setBusy(false);
      later.waiting.end();
    }
  }
}

function showRefusal(error) {
  if (!(error instanceof Refused)) throw error;
  clearTimeout(timer);
  later.problems.show(error, now.answer !== null, renew);
  announce("");
}

function announce(text) {
  byId("status").textContent = text;
}

function useSystem(system) {
  now.system = system;
  later.machine?.sliders(system, change);
  later.machine?.render(now.state, system);
}

/** Draw an answer; the slower figures follow once nothing has changed for a moment. */
function draw(answer) {
  Object.assign(now, { answer, model: answer.model });
  byId("headline").replaceChildren(...headline(answer));
  byId("bar").textContent = brief(answer);
  drawPlan();
  clearTimeout(timer);
  timer = setTimeout(drawSlower, answer.plans.length ? SETTLED : 0);
}

/** The plan that is shown in detail: the best, or a pinned one. */
function shownPlan() {
  const pin = now.pinned["ab".indexOf(now.state.view)];
  return pin?.plan ?? now.answer?.plans[0] ?? null;
}

function drawPlan() {
  const { answer, catalog } = now;
  const plan = shownPlan();
  const devices = plan === answer.plans[0] ? answer.devices : plan?.devices;
  const { time, memory } = catalog.components;
  figures.time.show(plan && { plan, components: time });
  figures.memory.show(
    plan && { plan, devices, capacity: answer.system.capacity_bytes, components: memory },
  );
}

/** Draw what the first drawing did not wait for. */
function drawRest() {
  const { answer, state } = now;
  if (!later.questions || !answer) return;
  later.questions.render(state, answer.state, now.catalog);
  later.questions.facts(answer.model, now.system ?? answer.system);
  later.rejected.reasons(answer);
  byId("plans").hidden = !answer.plans.length;
  if (answer.plans.length) {
    byId("plans-says").textContent = later.plans.says(answer);
    const ranking = later.plans.ranking(answer, now.catalog, state.pins, togglePin);
    swap(byId("plans").querySelector(".scroll"), ranking);
  }
  drawSpace();
  for (const name of ["scaling", "sensitivity", "timeline"]) figures[name].outdated();
  drawComparison();
  byId("csv").href = `/api/plans.csv${address()}`;
}

function drawSpace() {
  const { answer, state, pinned } = now;
  figures.space.show(answer.plans.length ? { answer, pins: state.pins, pinned, toggle: togglePin } : null);
}

/** Announce the answer, and ask for the slower figures. */
async function drawSlower() {
  if (!later.questions || !now.answer) return;
  const { state, catalog } = now;
  announce(sentence(now.answer));
  const body = question(state);
  const fits = (row) => row.step_seconds !== null;
  await Promise.all([
    askFor("/api/explain", body, drawExplanation),
    estimatePins(state, body),
    askFor("/api/scaling", body, (scaling) => figures.scaling.show(scaling.rows.some(fits) ? scaling : null)),
  ]);
  if (state !== now.state) return;
  const plan = shownPlan();
  later.take.renew(state, takeChoices());
  if (plan && catalog.timeline) {
    const show = (trace) => figures.timeline.show({ trace, redraw: () => figures.timeline.redraw() });
    const hide = () => figures.timeline.show(null);
    await askFor("/api/timeline", { ...body, plan: plan.knobs }, show, hide);
  } else figures.timeline.show(null);
  performance.mark("complete");
}

/** Ask, and show the answer unless a later question took its place. */
async function askFor(path, body, show, onRefused = () => {}) {
  try {
    const answer = await ask(path, body);
    if (answer !== null) show(answer);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    onRefused(error);
  }
}

function drawExplanation(explanation) {
  const fits = now.answer.plans.length > 0;
  if (fits) byId("sure").textContent = certainty(explanation);
  figures.sensitivity.show(fits ? { explanation } : null);
  later.rejected.lost(explanation, now.answer, (bytes) =>
    changeFigures({ "accelerator.hbm_bytes": quarterGibs(bytes) }),
  );
  const apply = (patch) => change({ ...patch, figures: { ...now.state.figures, ...patch.figures } });
  byId("miss")?.replaceChildren(...nearest(explanation, now.answer, apply));
}

/** Estimate the pinned plans for the question as it is now. */
async function estimatePins(state, body) {
  const requests = state.pins.map((knobs, i) =>
    ask("/api/plan", { ...body, plan: knobs }, { name: `pin-${i}` }).then(
      (plan) => plan && { plan, knobs },
      (error) => ({ error: error.message, knobs }),
    ),
  );
  const answers = await Promise.all(requests);
  if (answers.includes(null) || state !== now.state) return;
  now.pinned = answers;
  drawComparison();
  drawSpace();
  if (state.view !== "best") drawPlan();
}

/** Pin a plan, or let it go; of three, the oldest goes. */
function togglePin(knobs) {
  const { pins } = now.state;
  const others = pins.filter((pin) => !samePlan(pin, knobs));
  changeView({ pins: others.length < pins.length ? others : [...pins, knobs].slice(-2) });
}

/** Change what only the page needs: no new search. */
function changeView(patch) {
  now.state = blank({ ...now.state, ...patch });
  if ("ab".indexOf(now.state.view) >= now.state.pins.length) now.state.view = "best";
  history.pushState(now.state, "", address());
  matchPins();
  drawPlan();
  drawRest();
  clearTimeout(timer);
  timer = setTimeout(drawSlower, 0);
}

/** Order the answers on pinned plans as the pins. */
function matchPins() {
  const answerOn = (pin) => now.pinned.find((answer) => samePlan(answer?.knobs ?? {}, pin)) ?? null;
  now.pinned = now.state.pins.map(answerOn);
}

function drawComparison() {
  const { answer, state, catalog } = now;
  const data = {
    pinned: state.pins.map((_, i) => now.pinned[i] ?? null),
    components: catalog.components,
    capacity: answer.system.capacity_bytes,
    gpus: answer.state.gpus,
    unpin: (i) => togglePin(now.state.pins[i]),
  };
  swap(byId("compare-body"), ...later.compare.comparison(data, byId("compare-body").clientWidth));
  const views = [["best", "Best plan"], ...state.pins.map((_, i) => ["ab"[i], `Pinned plan ${"AB"[i]}`])];
  byId("showing").hidden = views.length < 2 || !answer.plans.length;
  const buttons = views.map(([view, words]) =>
    button(words, () => changeView({ view }), {
      "data-key": view,
      "aria-pressed": String(view === state.view),
    }),
  );
  swap(byId("showing"), "Shown below: ", ...buttons);
}

/** What can be taken along: `[value, words, knobs or null]`. */
function takeChoices() {
  const [best] = now.answer.plans;
  return [
    ["search", "the search", null],
    ...(best ? [["best", "the best plan", best.knobs]] : []),
    ...now.state.pins.map((pin, i) => ["ab"[i], `pinned plan ${"AB"[i]}`, pin]),
  ];
}

/** Load the rest of the page behind the first drawing. */
async function complete() {
  const load = (name) => import(`/static/${name}.js`);
  const chartModules = Promise.all(CHARTS.map((name) => load(`charts/${name}`)));
  const modules = await Promise.all(MODULES.map(load));
  const charts = await chartModules;
  await (await load("charts/plot")).load(); // from here on nothing waits: all that listeners use is there
  CHARTS.forEach((name, i) => (figures[name] = new Figure(name, charts[i])));
  MODULES.forEach((name, i) => (later[name] = modules[i]));
  const { questions, take, dialog } = later;
  questions.prepare(now.catalog, change);
  questions.render(now.state, null, now.catalog);
  questions.facts(now.model, now.system);
  if (now.system) useSystem(now.system);
  take.prepare(() => now.state, takeChoices);
  dialog.prepare(change);
  byId("share").addEventListener("click", () => take.copy(byId("share"), location.href));
  byId("reset").addEventListener("click", reset);
  byId("cancel").addEventListener("click", () => {
    cancel("search");
    showRefusal(new Refused({ message: "The search was cancelled." }, 0));
  });
  byId("figures-reset").addEventListener("click", () => change({ figures: {} }));
  byId("version").textContent = now.catalog.version;
  if (first.error) showRefusal(new Refused(first.error, 422));
  drawRest();
}

function reset() {
  const empty = Object.fromEntries(Object.keys(now.state).map((key) => [key, null]));
  change({ ...empty, ...blank(now.catalog.default) });
}

window.addEventListener("popstate", ({ state }) => {
  if (state === null) return history.replaceState(now.state, ""); // a jump within the page
  now.state = state;
  matchPins();
  return renew();
});

theme.prepare();
history.replaceState(now.state, "");
if (first.answer) draw(first.answer);
await painted();
performance.mark("painted");
await complete();
if (first.answer) drawSlower();
else if (!first.error) renew();
