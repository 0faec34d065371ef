// The explorer: a question in the form and in the address, its answer drawn. The latest answer wins.

import { blank, question, samePlan, write } from "./address.js";
import { brief, certainty, headline, nearest, sentence, showLockPrice } from "./answer.js";
import * as memoryChart from "./charts/memory.js";
import * as timeChart from "./charts/time.js";
import { button, byId, swap } from "./dom.js";
import { Figure } from "./figure.js";
import { ask, cancel, Refused } from "./server.js";
import * as theme from "./theme.js";

const SETTLED = 120; // milliseconds without a change after which the slower figures are asked for
const STALE = 250; // milliseconds after which a search under way is given up for a newer one
const SLOWER = ["/api/space", "/api/explain", "/api/scaling", "/api/timeline"]; // questions that follow a search
const MODULES = [
  ...["questions", "machine", "plans", "compare", "rejected", "take", "problems", "dialog", "waiting", "design"],
  "measured",
];
const CHARTS = ["space", "scaling", "sensitivity", "timeline"];

const first = JSON.parse(byId("first").textContent);
const { catalog } = first;
const now = {
  model: first.model,
  system: first.system,
  systemName: first.system && first.state.system, // as the question calls the system whose figures are drawn
  state: blank({ ...first.state, ...first.page }),
  answer: null,
  space: null, // the design space of an answer
  pinned: [], // answers on the pinned plans
  compared: null, // the table of both
  turn: 0,
};
const figures = { time: new Figure("time", timeChart), memory: new Figure("memory", memoryChart) };
const later = {}; // modules that the first drawing does not need
let [frame, searching, searchBegin, timer] = [null, null, 0, 0];

const address = () => write(now.state, catalog);
const plansBox = () => byId("plans").querySelector(".scroll");

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

/** Change fields of the question, and figures beside those changed before. */
const apply = (patch) => change({ ...patch, figures: { ...now.state.figures, ...patch.figures } });

const setBusy = (isBusy) => byId("main").setAttribute("aria-busy", String(isBusy));
const announce = (text) => (byId("status").textContent = text);

/** Mark the answer as one to an earlier question, as the figures below it are marked. */
const setOutdated = (isOutdated) => {
  for (const id of ["headline", "bar", "plans"]) byId(id).classList.toggle("stale", isOutdated);
  if (isOutdated) for (const figure of [figures.time, figures.memory]) figure.outdated();
};

/** Search once for all changes of a frame; a slow search under way gives way to a newer one. */
function renew() {
  now.turn += 1;
  setBusy(true);
  setOutdated(true);
  clearTimeout(timer);
  cancel(...SLOWER);
  later.questions.render(now.state, null, catalog);
  if (now.system) later.machine.render(now.state, now.system, now.state.system === now.systemName);
  frame ??= requestAnimationFrame(async () => {
    const giveUp = new Promise((then) => setTimeout(then, searchBegin + STALE - performance.now()));
    await Promise.race([searching, giveUp]);
    frame = null;
    searching = search();
  });
}

async function search() {
  const { state, changed, turn } = now;
  const body = question(state);
  searchBegin = performance.now();
  const stopWaiting = later.waiting.begin(body, "Searching", announce);
  try {
    const [answer] = await Promise.all([
      ask("/api/search", body, { name: "search", onBusy: later.problems.wait }),
      state.system === now.systemName ? null : loadSystem(state.system),
    ]);
    if (answer === null) return;
    later.problems.clear();
    draw(answer);
    await painted();
    if (changed) performance.measure("answer", { start: changed, end: performance.now() });
    if (answer === now.answer) drawRest();
  } catch (error) {
    showRefusal(error);
  } finally {
    if (turn === now.turn) setBusy(false);
    stopWaiting();
  }
}

/** Ask for the figures of a system; its sliders take the place of those before, whatever the search does. */
async function loadSystem(name) {
  const system = await ask(`/api/system?name=${encodeURIComponent(name)}`);
  if (system && name === now.state.system) useSystem(system, name);
}

function showRefusal(error) {
  if (!(error instanceof Refused)) throw error;
  clearTimeout(timer);
  later.problems.show(error, now.answer !== null, renew);
  announce("");
}

/** End the search under way, or what follows it. */
function cancelAll() {
  const hadAnswer = byId("main").getAttribute("aria-busy") !== "true";
  now.turn += 1;
  cancel("search", ...SLOWER);
  setBusy(false);
  const what = hadAnswer ? "The figures that follow the answer were cancelled." : "The search was cancelled.";
  later.problems.show(new Refused({ message: what }, 0), now.answer !== null && !hadAnswer, renew);
  announce("");
}

function useSystem(system, name) {
  Object.assign(now, { system, systemName: name });
  later.machine.sliders(system, change);
  later.machine.render(now.state, system, true);
}

/** Draw an answer; the slower figures follow once nothing has changed for a moment. */
function draw(answer) {
  Object.assign(now, { answer, model: answer.model });
  setOutdated(false);
  byId("headline").replaceChildren(...headline(answer));
  byId("bar").textContent = brief(answer);
  drawPlan();
  clearTimeout(timer);
  timer = setTimeout(drawSlower, answer.plans.length ? SETTLED : 0);
}

/** The plan that is shown in detail: the recommended, or a pinned one. */
const shownPlan = () => now.pinned["ab".indexOf(now.state.view)]?.plan ?? now.answer.plans[0] ?? null;

/** The request for what concerns that plan; null where there is none. */
function ofShownPlan() {
  const plan = now.answer && shownPlan();
  return plan ? { ...question(now.state), plan: plan.knobs } : null;
}

function drawPlan() {
  const { plans, system } = now.answer;
  const plan = shownPlan();
  const { devices, phases } = (plan === plans[0] ? now.answer : plan) ?? {};
  const { time, memory } = catalog.components;
  figures.time.show(plan && { plan, components: time });
  figures.memory.show(plan && { plan, devices, phases, capacity: system.capacity_bytes, components: memory });
}

/** Draw what the first drawing did not wait for. */
function drawRest() {
  const { answer, state } = now;
  if (!later.questions || !answer) return;
  later.questions.render(state, answer.state, catalog);
  later.questions.facts(answer.model, now.system ?? answer.system);
  later.rejected.reasons(answer);
  byId("plans").hidden = !answer.plans.length;
  byId("compare").hidden = !answer.plans.length && !state.pins.length;
  byId("measured").hidden = !answer.plans.length;
  if (answer.plans.length) {
    byId("plans-says").textContent = later.plans.says(answer);
    const { ranked, terms } = later.plans.ranking(answer, catalog, state.pins, togglePin);
    swap(plansBox(), ranked);
    later.plans.fold(plansBox());
    byId("terms").querySelector("dl").replaceChildren(...terms);
  }
  // Where nothing fits, nothing takes the place of figures of an earlier question.
  const hasPlan = answer.plans.length > 0;
  for (const name of ["scaling", "sensitivity", "timeline"])
    if (hasPlan) figures[name].outdated();
    else figures[name].show(null);
  later.design.renew(question(state));
  drawPins();
  byId("csv").href = `/api/plans.csv${address()}`;
}

/** Draw the design space of the answer, or mark that of an earlier one. */
function drawSpace() {
  const { answer, space, state, pinned } = now;
  if (!answer.plans.length) figures.space.show(null);
  else if (space?.answer !== answer) figures.space.outdated();
  else figures.space.show({ ...space, pins: state.pins, pinned, toggle: togglePin });
}

/** Draw the pinned plans in the design space and side by side, and the choice of what is shown below. */
function drawPins() {
  const { answer, state, pinned, compared } = now;
  drawSpace();
  const data = {
    pinned: state.pins.map((_, i) => pinned[i] ?? null),
    compared,
    catalog,
    gpus: answer.state.gpus,
    unpin: (i) => togglePin(now.state.pins[i]),
  };
  swap(byId("compare-body"), ...later.compare.comparison(data, byId("compare-body").clientWidth));
  const views = [["best", "Recommended plan"], ...state.pins.map((_, i) => ["ab"[i], `Pinned plan ${"AB"[i]}`])];
  byId("showing").hidden = views.length < 2 || !answer.plans.length;
  const buttons = views.map(([view, words]) => {
    const attributes = { "data-key": view, "aria-pressed": String(view === state.view) };
    return button(words, () => changeView({ view }), attributes);
  });
  swap(byId("showing"), "Shown below: ", ...buttons);
}

/** Announce the answer, and ask for the slower figures. */
async function drawSlower() {
  if (!later.questions || !now.answer) return;
  const { state, turn } = now;
  announce(sentence(now.answer));
  const body = question(state);
  const stopWaiting = later.waiting.begin(body, "Design space, reasons and scaling");
  const fits = (row) => row.step_seconds !== null;
  const hide = (name) => () => figures[name].show(null);
  const showScaling = (scaling) => figures.scaling.show(scaling.rows.some(fits) ? scaling : null);
  const showSpace = (points) => {
    now.space = { ...points, answer: now.answer };
    drawSpace();
  };
  await Promise.all([
    askFor("/api/space", body, showSpace, hide("space")),
    askFor("/api/explain", body, drawExplanation, hide("sensitivity")),
    estimatePins(state, body),
    askFor("/api/scaling", body, showScaling, hide("scaling")),
  ]);
  stopWaiting();
  if (state !== now.state || turn !== now.turn) return;
  const plan = shownPlan();
  later.take.renew(state, takeChoices());
  later.measured.renew(ofShownPlan());
  const show = (trace) => figures.timeline.show({ trace, redraw: () => figures.timeline.redraw() });
  if (plan) {
    const ofPlan = { ...body, plan: plan.knobs };
    const stopTimeline = later.waiting.begin(ofPlan, "Timeline");
    await askFor("/api/timeline", ofPlan, show, hide("timeline"));
    stopTimeline();
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
  showLockPrice(byId("lock-price"), explanation);
  figures.sensitivity.show(fits ? { explanation } : null);
  later.rejected.lost(explanation, now.answer, apply);
  byId("miss")?.replaceChildren(...nearest(explanation, now.answer, apply));
}

/** Estimate the pinned plans for the question as it is now. */
async function estimatePins(state, body) {
  const estimated = async (knobs, i) => {
    const plan = await ask("/api/plan", { ...body, plan: knobs }, { name: `pin-${i}` });
    return plan && { plan, knobs };
  };
  const failed = (knobs) => (error) => ({ error: error.message, knobs });
  const answers = await Promise.all(state.pins.map((pin, i) => estimated(pin, i).catch(failed(pin))));
  const plans = answers.flatMap((answer) => answer?.plan?.knobs ?? []);
  const refused = (error) => ({ sentences: [error.message], columns: [], rows: [[], []] });
  const both = () => ask("/api/compare", { ...body, plans }, { name: "compare" }).catch(refused);
  const compared = plans.length < 2 ? null : await both();
  if (answers.includes(null) || state !== now.state) return;
  Object.assign(now, { pinned: answers, compared });
  drawPins();
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
  now.compared = null;
}

/** What can be taken along: `[value, words, knobs or null]`. */
function takeChoices() {
  const best = now.answer.plans.slice(0, 1).map(({ knobs }) => ["best", "the recommended plan", knobs]);
  const pins = now.state.pins.map((pin, i) => ["ab"[i], `pinned plan ${"AB"[i]}`, pin]);
  return [["search", "the search", null], ...best, ...pins];
}

/** Load the rest of the page behind the first drawing. */
async function complete() {
  const names = [...CHARTS.map((name) => `charts/${name}`), ...MODULES];
  const modules = await Promise.all(names.map((name) => import(`/static/${name}.js`)));
  // From here on nothing waits: all that listeners use is there.
  for (const name of CHARTS) figures[name] = new Figure(name, modules.shift());
  for (const name of MODULES) later[name] = modules.shift();
  const { questions, take, dialog } = later;
  questions.prepare(catalog, change);
  questions.render(now.state, null, catalog);
  questions.facts(now.model, now.system);
  if (now.system) useSystem(now.system, now.systemName);
  take.prepare(() => now.state, takeChoices);
  later.measured.prepare(ofShownPlan);
  dialog.prepare(change);
  const clicks = {
    share: () => take.copy(byId("share"), location.href),
    reset: () => change(blank(catalog.default)),
    "figures-reset": () => change({ figures: {} }),
    cancel: cancelAll,
  };
  for (const [id, click] of Object.entries(clicks)) byId(id).addEventListener("click", click);
  new ResizeObserver(() => later.plans.fold(plansBox())).observe(byId("plans-title")); // as wide as the box
  byId("version").textContent = catalog.version;
  if (first.refusal) showRefusal(new Refused(first.refusal.error, 422));
  drawRest();
}

theme.prepare();
const wide = matchMedia("(min-width: 60rem)"); // where the form stands beside the answer, as in layout.css
const openForm = () => (byId("ask").open = wide.matches);
openForm();
wide.addEventListener("change", openForm);
history.replaceState(now.state, "");
if (first.answer) draw(first.answer);
await painted();
performance.mark("painted");
await complete();
window.addEventListener("popstate", ({ state }) => {
  if (state === null) return history.replaceState(now.state, ""); // a jump within the page
  now.state = state;
  matchPins();
  return renew();
});
if (first.answer && first.system) drawSlower();
else if (!first.refusal) renew(); // what was not known in time
