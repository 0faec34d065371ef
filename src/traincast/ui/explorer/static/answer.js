// The answer in words and numbers: the recommended plan's headline, or the nearest miss where nothing fits.

import { button, h } from "./dom.js";
import { chance, days, fixed, gib, large, number, percent, prefix, quarterGibs, seconds, whole } from "./format.js";
import { meaning } from "./terms.js";

/** The headline of an answer. */
export function headline(answer) {
  const [recommended] = answer.plans;
  const asked = [h("p.says", question(answer)), ...assumed(answer.model)];
  if (!recommended) return [...asked, nothing(answer)];
  const [words, reason] = answer.recommendation;
  const label = h("p.label.mono", recommended.label);
  const why = reason ? h("p.notes", reason) : "";
  const sure = [step(recommended), calibrated(answer.system), uncertain(recommended)];
  const plan = [h("p.says", words), label, stats(recommended, answer)];
  return [...asked, ...sure, ...plan, lockPrice(), why, notes(recommended, answer)];
}

/** The question in words. */
function question({ model, state, system }) {
  const pairs = `, ${whole(state.global_batch / 2)} pairs of a chosen and a rejected answer,`;
  const batch = `${whole(state.global_batch)} sequences${model.has_pairs ? pairs : ""} of ${whole(state.seq)} tokens a step`;
  const held = Object.entries(state.locks).map(([name, value]) => `${name}=${value}`).join(" ");
  const changed = Object.keys(state.figures).length;
  const figures = changed && `${changed} ${changed === 1 ? "figure" : "figures"} of the machine changed`;
  const asked = [`${model.name} on ${whole(state.gpus)} GPUs of ${system.name}`, batch, held && `with ${held}`, figures];
  return `${asked.filter(Boolean).join(", ")}:`;
}

/** What was taken where the question says nothing, such as the batch of a fine-tuning. */
const assumed = ({ taken }) => (taken ? [h("p.notes", `${taken[0].toUpperCase()}${taken.slice(1)}.`)] : []);

/** The answer in a sentence, for screen readers. */
export function sentence({ plans: [recommended], candidates, feasible }) {
  if (!recommended) return `Nothing fits: none of ${whole(candidates)} candidates.`;
  const plan = `${seconds(recommended.step_seconds, 4)} a step, ${gib(recommended.memory_bytes)}: ${recommended.label}`;
  return `Recommended: ${plan}. ${whole(feasible)} of ${whole(candidates)} candidates fit.`;
}

/** The answer in a few words, for the foot of a small screen. */
export function brief({ plans: [recommended], feasible }) {
  if (!recommended) return "Nothing fits";
  const step = `${seconds(recommended.step_seconds, 4)} a step`;
  return [step, gib(recommended.memory_bytes), `${whole(feasible)} plans fit`].join(" · ");
}

function step({ step_seconds: time, step_seconds_low: low, step_seconds_high: high }) {
  const [size, letter] = prefix(time);
  const interval = low
    ? `${fixed(low / size)} to ${fixed(high / size)} ${letter}s, 90% interval`
    : "on an idealised machine, not calibrated";
  const value = h("strong", fixed(time / size, 4), h("span.unit", `${letter}s`));
  return h("p.step", value, h("span.of", "a step"), h("span.of", interval));
}

/** What the machine's figures are calibrated to, where that is the reader's own runs. */
function calibrated({ calibrated: words }) {
  if (!words) return "";
  return h("p.notes", `${words[0].toUpperCase()}${words.slice(1)}; the interval is that of published runs.`);
}

/** What the width of the interval is made of, the largest first, and which field narrows it most. */
function uncertain({ uncertain_of: parts, narrowed_by: option }) {
  if (!parts?.length) return "";
  return h("p.notes", `Uncertain by ${parts.join("; ")}.${option ? narrowing(option) : ""}`);
}

/** An option of a command as a field of the form. */
function narrowing(option) {
  const [name, value] = option.split(" ");
  if (name === "--framework") return ` Choose a framework, such as ${value}, to narrow it.`;
  if (name === "--given") return ` Say what the software has, such as ${value}, to narrow it.`;
  return ` Choose the software, such as ${value}, to narrow it.`;
}

function stats(recommended, answer) {
  const { metrics, fits_probability: probability, training_days: time } = recommended;
  const [convention, mfu] = Object.entries(metrics.mfu ?? {})[0] ?? [];
  const likely = Number.isFinite(probability) ? `, ${chance(probability)} sure` : "";
  const rows = [
    ["Memory", gib(recommended.memory_bytes), `of ${gib(answer.system.capacity_bytes)}${likely}`],
    ["Throughput", `${number(recommended.tokens_per_second_per_gpu, 4)} token/s`, "each GPU"],
    mfu !== undefined && ["Utilisation (MFU)", percent(mfu, 3), convention],
    time !== null && ["The whole run", days(time), `${large(metrics.gpu_hours)} GPU-hours`],
    metrics.cost && ["Cost", `$${large(metrics.cost)}`, "of the whole run"],
  ].filter(Boolean);
  const stat = ([name, value, remark]) =>
    h("div", h("dt", { title: meaning(name) }, name), h("dd", value, h("small", remark)));
  return h("dl.stats", rows.map(stat));
}

function notes({ outside_measured: all = [], uncertain_of: parts = [] }, { candidates, feasible, elapsed_seconds, state }) {
  const search = `${whole(candidates)} candidates, ${whole(feasible)} fit`;
  const how = `as ${state.framework}, assuming ${state.assumptions}`;
  const settings = `; searched in ${seconds(elapsed_seconds)} ${how}.`;
  const outside = all.filter((respect) => !parts.some((part) => part.includes(respect))); // said above
  const beyond = outside.length ? ` Outside of measured runs: ${outside.join("; ")}.` : null;
  return h("p.notes", search, settings, beyond, h("span", { id: "sure" }));
}

/** Which of the plans listed are equal; nothing where errors are not known. */
export const certainty = ({ confidence }) => (confidence ? ` ${confidence}` : "");

function nothing({ candidates, reasons, system, state }) {
  const why = candidates
    ? `None of ${whole(candidates)} candidates fits in ${gib(system.capacity_bytes)} of memory.`
    : impossible(state, reasons);
  return h("div.miss", h("h3", "Nothing fits"), h("p", why), lockPrice(), h("div", { id: "miss" }));
}

/** Where the slower explanation says what the knobs held cost. */
const lockPrice = () => h("p.notes", { id: "lock-price", hidden: true });

/** Say what the knobs held cost; nothing where they cost nothing. */
export function showLockPrice(node, { lock_price: sentence }) {
  node.textContent = sentence;
  node.hidden = !sentence;
}

/** Why no plan is possible, as the command line says it. */
function impossible({ gpus, locks }, reasons) {
  const held = Object.entries(locks).map(([name, value]) => `${name} = ${value}`).join(", ");
  const why = reasons.length ? `: ${reasons.join("; ")}` : "";
  return `No plan uses exactly ${whole(gpus)} GPUs${held && ` with ${held}`}${why}.`;
}

/** What is nearest to fitting, and what would make it fit; `apply(patch)` changes the question so. */
export function nearest(explanation, answer, apply) {
  const { nearest_miss: miss, fits_from: from, possible_gpus: possible } = explanation;
  if (miss) return missLines(miss, from, answer.system, apply);
  if (!answer.candidates && possible?.length) {
    const choice = (gpus) => button(whole(gpus), () => apply({ gpus }));
    const buttons = possible.flatMap((gpus, i) => [i ? ", " : "", choice(gpus)]);
    return [h("p", "The nearest numbers of GPUs that have plans: ", buttons, ".")];
  }
  const said = ["Rejected:", ...answer.reasons]; // above, or in the list of what was rejected
  const isPrice = (line) => line.startsWith("Without ") && !line.includes(" alone "); // said above, too
  const isNew = (line) => !said.includes(line) && !isPrice(line);
  const lines = explanation.text.slice(1).map((line) => line.trim()).filter(isNew);
  return lines.length ? [h("ul", lines.slice(0, 5).map((line) => h("li", line)))] : [];
}

function missLines(miss, from, { capacity_bytes: capacity, driver_bytes: kept }, apply) {
  const short = miss.memory_bytes - capacity;
  const needs = ` needs ${gib(miss.memory_bytes)}, ${gib(short)} too much.`;
  const bytes = quarterGibs(miss.memory_bytes + kept);
  const more = `${gib(bytes)} of memory (+${percent(short / capacity)})`;
  const larger = from && button(`${whole(from.gpus)} GPUs`, () => apply({ gpus: from.gpus }));
  const least = from && `, where the leanest plan needs ${gib(from.memory_bytes)}`;
  const memory = button(more, () => apply({ figures: { "accelerator.hbm_bytes": bytes } }));
  return [
    h("p", "Nearest to fitting: ", h("span.mono", miss.label), needs),
    h("p", "It would fit with ", memory, from && [" or on ", larger, least], "."),
  ];
}
