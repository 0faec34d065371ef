// The explorer: a question in the form and in the address, its answer drawn; every change asks again, and the latest answer wins.

import { blank, question, read, samePlan, write } from "./address.js";
import { brief, headline, nearest, sentence, sureness } from "./answer.js";
import * as memoryChart from "./charts/memory.js";
import * as timeChart from "./charts/time.js";
import { byId, h, swap } from "./dom.js";
import { Figure } from "./figure.js";
import { ask, look, Refused } from "./server.js";
import * as theme from "./theme.js";

const SETTLED = 120; // milliseconds without a change after which the slower figures are asked for
const STALE = 250; // milliseconds after which a search under way is given up for a newer one

const first = JSON.parse(byId("first").textContent || "null");
const now = { catalog: first.catalog, state: null, answer: null, model: first.model, system: first.system, pinned: [], turn: 0 };
const figures = { time: new Figure("time", timeChart), memory: new Figure("memory", memoryChart) };
const later = {}; // modules that the first drawing does not need
let [asked, waiting, since, timer] = [null, null, 0, 0];

const address = () => write(now.state, now.catalog);

/** Go on once what was drawn is on the screen. */
const painted = () => new Promise((then) => requestAnimationFrame(() => setTimeout(then)));

/** Change the question: `patch` are fields, or a function that gives them; `settled` is false while a slider moves. */
function change(patch, settled = true) {
  const before = address();
  now.state = blank({ ...now.state, ...(typeof patch === "function" ? patch(now.state) : patch) });
  now.changed = performance.now();
  if (settled && address() !== location.search) history.pushState(null, "", address());
  if (address() !== before) renew();
}

const busy = (is) => byId("main").setAttribute("aria-busy", String(is));

/** Search once for all changes of a frame. One search is under way at a time; a slow one is given up for a newer question. */
function renew() {
  now.turn += 1;
  busy(true);
  clearTimeout(timer);
  timer = setTimeout(status, 600, "Searching …");
  later.form?.render(now.state, null, now.catalog);
  if (now.system) later.machine?.render(now.state, now.system);
  if (asked) return;
  asked = requestAnimationFrame(async () => {
    await Promise.race([waiting, new Promise((go) => setTimeout(go, since + STALE - performance.now()))]);
    asked = null;
    waiting = search();
  });
}

async function search() {
  const { state, changed, turn } = now;
  since = performance.now();
  try {
    const [answer, system] = await Promise.all([
      ask("/api/search", question(state), { name: "search", busy: later.problems.wait }),
      state.system === now.system?.name ? null : look(`/api/system?name=${encodeURIComponent(state.system)}`),
    ]);
    if (answer === null) return;
    if (system && state.system === now.state.system) useSystem(system);
    later.problems.clear();
    drawn(answer);
    await painted();
    if (changed) performance.measure("answer", { start: changed, end: performance.now() });
    if (answer === now.answer) rest();
  } catch (error) {
    refused(error);
  } finally {
    if (turn === now.turn) busy(false);
  }
}

function refused(error) {
  if (!(error instanceof Refused)) throw error;
  clearTimeout(timer);
  later.problems.tell(error, now.answer !== null);
  status("");
}

function status(text) {
  byId("status").textContent = text;
}

function useSystem(system) {
  now.system = system;
  later.machine?.sliders(system, change);
  later.machine?.render(now.state, system);
}

/** Draw an answer; what is slower follows once nothing has changed for a moment. */
function drawn(answer) {
  Object.assign(now, { answer, model: answer.model });
  byId("headline").replaceChildren(...headline(answer));
  byId("bar").textContent = brief(answer);
  showPlan();
  clearTimeout(timer);
  timer = setTimeout(slower, answer.plans.length ? SETTLED : 0);
}

/** The plan that is shown in detail: the best, or a pinned one. */
function shown() {
  const pin = now.pinned["ab".indexOf(now.state.view)];
  return pin?.plan ?? now.answer?.plans[0] ?? null;
}

function showPlan() {
  const plan = shown();
  const devices = plan === now.answer.plans[0] ? now.answer.devices : plan?.devices;
  const { time, memory } = now.catalog.components;
  figures.time.show(plan && { plan, components: time });
  figures.memory.show(plan && { plan, devices, capacity: now.answer.system.capacity_bytes, components: memory });
}

/** What the first drawing did not wait for. */
function rest() {
  const { answer, state } = now;
  if (!later.form || !answer) return;
  later.form.render(state, answer.state, now.catalog);
  later.form.facts(answer.model, now.system ?? answer.system);
  later.rejected.reasons(answer);
  byId("plans").hidden = !answer.plans.length;
  if (answer.plans.length) {
    byId("plans-says").textContent = later.plans.says(answer);
    swap(byId("plans").querySelector(".scroll"), later.plans.ranking(answer, now.catalog, state.pins, toggle));
  }
  drawSpace();
  for (const name of ["scaling", "sensitivity", "timeline"]) later[name].outdated();
  compare();
  byId("csv").href = `/api/plans.csv${address()}`;
}

function drawSpace() {
  const { answer, state, pinned } = now;
  later.space.show(answer.plans.length ? { answer, pins: state.pins, pinned, toggle } : null);
}

/** Say the answer, and ask for what takes longer. */
async function slower() {
  if (!later.form || !now.answer) return;
  const state = now.state;
  status(sentence(now.answer));
  const body = question(state);
  await Promise.all([
    told("/api/explain", body, (explanation) => explained(explanation)),
    pins(state, body),
    told("/api/scaling", body, (scaling) =>
      later.scaling.show(scaling.rows.some((row) => row.step_seconds !== null) ? scaling : null),
    ),
  ]);
  if (state !== now.state) return;
  const plan = shown();
  later.take.renew(state, choices());
  if (plan && now.catalog.timeline)
    await told(
      "/api/timeline",
      { ...body, plan: plan.knobs },
      (trace) => later.timeline.show({ trace, again: () => later.timeline.redraw() }),
      () => later.timeline.show(null),
    );
  else later.timeline.show(null);
  performance.mark("complete");
}

/** Ask, and show what is told unless a later question took its place. */
async function told(path, body, show, failed = () => {}) {
  try {
    const found = await ask(path, body);
    if (found !== null) show(found);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    failed(error);
  }
}

function explained(explanation) {
  const best = now.answer.plans.length > 0;
  if (best) byId("sure").textContent = sureness(explanation);
  later.sensitivity.show(best ? { explanation } : null);
  later.rejected.lost(explanation, now.answer, (bytes) =>
    change({ figures: { ...now.state.figures, "accelerator.hbm_bytes": Math.ceil(bytes / 2 ** 28) * 2 ** 28 } }),
  );
  byId("miss")?.replaceChildren(
    ...nearest(explanation, now.answer, (patch) => change({ ...patch, figures: { ...now.state.figures, ...patch.figures } })),
  );
}

/** Estimate the pinned plans as the question is now. */
async function pins(state, body) {
  const found = await Promise.all(
    state.pins.map((plan, i) =>
      ask("/api/plan", { ...body, plan }, { name: `pin-${i}` }).then(
        (one) => one && { plan: one, knobs: plan },
        (error) => ({ error: error.message, knobs: plan }),
      ),
    ),
  );
  if (found.includes(null) || state !== now.state) return;
  now.pinned = found;
  compare();
  drawSpace();
  if (state.view !== "best") showPlan();
}

/** Pin a plan, or let it go; of three, the oldest goes. */
function toggle(knobs) {
  const { pins: before } = now.state;
  const without = before.filter((pin) => !samePlan(pin, knobs));
  keep({ pins: without.length < before.length ? without : [...before, knobs].slice(-2) });
}

/** Change what only the page needs: no new search. */
function keep(patch) {
  now.state = blank({ ...now.state, ...patch });
  if (now.state.view !== "best" && "ab".indexOf(now.state.view) >= now.state.pins.length) now.state.view = "best";
  history.pushState(null, "", address());
  matched();
  refresh();
}

/** What is known of each pinned plan, in the order of the pins. */
function matched() {
  now.pinned = now.state.pins.map((pin) => now.pinned.find((one) => samePlan(one?.knobs ?? {}, pin)) ?? null);
}

function refresh() {
  showPlan();
  rest();
  clearTimeout(timer);
  timer = setTimeout(slower, 0);
}

function compare() {
  const { time, memory } = now.catalog.components;
  const pinned = now.state.pins.map((_, i) => now.pinned[i] ?? null);
  const data = {
    pinned,
    components: { time, memory },
    capacity: now.answer.system.capacity_bytes,
    gpus: now.answer.state.gpus,
    unpin: (i) => toggle(now.state.pins[i]),
  };
  swap(byId("compare-body"), ...later.compare.comparison(data, byId("compare-body").clientWidth));
  const views = [["best", "Best plan"], ...now.state.pins.map((_, i) => ["ab"[i], `Pinned plan ${"AB"[i]}`])];
  byId("showing").hidden = views.length < 2 || !now.answer.plans.length;
  swap(
    byId("showing"),
    "Shown below: ",
    ...views.map(([view, words]) =>
      h(
        "button",
        { type: "button", "aria-pressed": String(view === now.state.view), "data-key": view, onclick: () => keep({ view }) },
        words,
      ),
    ),
  );
}

/** What can be taken along. */
function choices() {
  const [best] = now.answer.plans;
  return [
    ["search", "the search", null],
    ...(best ? [["best", "the best plan", best.knobs]] : []),
    ...now.state.pins.map((pin, i) => ["ab"[i], `pinned plan ${"AB"[i]}`, pin]),
  ];
}

/** Load the rest of the page behind the first drawing. */
async function complete() {
  const [plot, space, scaling, sensitivity, timeline, form, machine, plans, comparing, rejected, take, problems, dialog] =
    await Promise.all(
      [
        "charts/plot",
        "charts/space",
        "charts/scaling",
        "charts/sensitivity",
        "charts/timeline",
        "questions",
        "machine",
        "plans",
        "compare",
        "rejected",
        "take",
        "problems",
        "dialog",
      ].map((name) => import(`/static/${name}.js`)),
    );
  await plot.load(); // from here on nothing waits: what is wired finds everything else in its place
  Object.assign(later, { form, machine, plans, compare: comparing, rejected, take, problems });
  Object.assign(later, {
    space: new Figure("space", space),
    scaling: new Figure("scaling", scaling),
    sensitivity: new Figure("sensitivity", sensitivity),
    timeline: new Figure("timeline", timeline),
  });
  form.prepare(now.catalog, change);
  form.render(now.state, null, now.catalog);
  form.facts(now.model, now.system);
  if (now.system) useSystem(now.system);
  take.prepare(() => now.state, choices);
  dialog.prepare(change);
  byId("share").addEventListener("click", () => take.copied(byId("share"), location.href));
  byId("reset").addEventListener("click", () =>
    change(() => ({ ...Object.fromEntries(Object.keys(now.state).map((key) => [key, null])), ...blank(now.catalog.default) })),
  );
  byId("figures-reset").addEventListener("click", () => change({ figures: {} }));
  byId("version").textContent = now.catalog.version;
  if (first.error) refused(new Refused(first.error, 422));
  rest();
}

window.addEventListener("popstate", () => {
  now.state = read(location.search, now.catalog);
  matched();
  renew();
});

theme.prepare();
now.state = read(location.search, now.catalog);
if (first.answer) drawn(first.answer);
await painted();
performance.mark("painted");
await complete();
if (first.answer) slower();
else if (!first.error) renew();
