// The answer in words and numbers: the best plan's headline, or what is nearest to fitting where nothing fits.

import { h } from "./dom.js";
import { days, fixed, gib, large, number, percent, prefix, quantity, seconds, whole } from "./format.js";

/** The headline of an answer. */
export function headline(answer) {
  const [best] = answer.plans;
  return best
    ? [step(best), h("p", { class: "label mono" }, best.label), stats(best, answer), notes(best, answer)]
    : [nothing(answer)];
}

/** The answer in a sentence, for those who hear it. */
export function sentence(answer) {
  const [best] = answer.plans;
  if (!best) return `Nothing fits: none of ${whole(answer.candidates)} candidates.`;
  return `Best plan ${seconds(best.step_seconds, 4)} a step, ${gib(best.memory_bytes)}: ${best.label}. ${whole(answer.feasible)} of ${whole(answer.candidates)} candidates fit.`;
}

/** The answer in a few words, for the foot of a small screen. */
export function brief(answer) {
  const [best] = answer.plans;
  return best
    ? `${seconds(best.step_seconds, 4)} a step · ${gib(best.memory_bytes)} · ${whole(answer.feasible)} plans fit`
    : "Nothing fits";
}

function step(best) {
  const [size, letter] = prefix(best.step_seconds);
  const interval = best.step_seconds_low
    ? h(
        "span",
        { class: "of" },
        `${fixed(best.step_seconds_low / size)} to ${fixed(best.step_seconds_high / size)} ${letter}s in 90 % of measured runs`,
      )
    : h("span", { class: "of" }, "on an idealised machine, not calibrated");
  const value = h("strong", {}, fixed(best.step_seconds / size, 4), h("span", { class: "unit" }, `${letter}s`));
  return h("p", { class: "step" }, value, h("span", { class: "of" }, "a step"), interval);
}

function stats(best, answer) {
  const { metrics } = best;
  const [convention, mfu] = Object.entries(metrics.mfu ?? {})[0] ?? [];
  const rows = [
    ["Memory", gib(best.memory_bytes), `of ${gib(answer.system.capacity_bytes)}${likely(best)}`],
    ["Throughput", `${number(best.tokens_per_second_per_gpu, 4)} token/s`, "each GPU"],
    mfu === undefined ? null : ["Utilisation (MFU)", percent(mfu, 3), convention],
    best.training_days === null ? null : ["The whole run", days(best.training_days), `${large(metrics.gpu_hours)} GPU-hours`],
    metrics.cost ? ["Cost", `$${large(metrics.cost)}`, "of the whole run"] : null,
  ].filter(Boolean);
  return h(
    "dl",
    { class: "stats" },
    rows.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, more && h("small", {}, more)))),
  );
}

function likely(best) {
  const share = best.fits_probability;
  return share === undefined || share === null ? "" : `, fits with ${percent(share)}`;
}

function notes(best, answer) {
  const found = `${whole(answer.candidates)} candidates, ${whole(answer.feasible)} fit; searched in ${seconds(answer.elapsed_seconds)} as ${answer.state.framework}, assuming ${answer.state.assumptions}.`;
  const outside = best.outside_measured ?? [];
  const beyond = outside.length ? ` Outside of measured runs: ${outside.join("; ")}.` : null;
  return h("p", { class: "notes" }, found, beyond, h("span", { id: "sure" }));
}

/** How sure the ranking is; nothing where errors are not known. */
export function sureness({ first_within_3_percent: first, listed_within_3_percent: listed }) {
  if (first === null || first === undefined) return "";
  return ` Really within 3 % of the fastest candidate: the first with ${percent(first)} probability, one of those listed with ${percent(listed)}.`;
}

function nothing(answer) {
  const why = answer.candidates
    ? `None of ${whole(answer.candidates)} candidates fits in ${gib(answer.system.capacity_bytes)} of memory.`
    : "No plan meets the rules.";
  return h("div", { class: "miss" }, h("h3", {}, "Nothing fits"), h("p", {}, why), h("div", { id: "miss" }));
}

/** What is nearest to fitting, and what would make it fit. `apply(patch)` asks that instead. */
export function nearest(explanation, answer, apply) {
  const { nearest_miss: miss, fits_from: from, possible_gpus: possible } = explanation;
  const capacity = answer.system.capacity_bytes;
  const lines = [];
  if (miss) {
    const short = miss.memory_bytes - capacity;
    lines.push(
      h(
        "p",
        {},
        "Nearest to fitting: ",
        h("span", { class: "mono" }, miss.label ?? miss.strategy),
        ` needs ${gib(miss.memory_bytes)}, ${gib(short)} too much.`,
      ),
    );
    const figures = { "accelerator.hbm_bytes": Math.ceil(miss.memory_bytes / 2 ** 28) * 2 ** 28 };
    lines.push(
      h(
        "p",
        {},
        "It would fit with ",
        button(`${gib(figures["accelerator.hbm_bytes"])} of memory (+${percent(short / capacity)})`, () => apply({ figures })),
        ...(from
          ? [
              " or on ",
              button(`${whole(from.gpus)} GPUs`, () => apply({ gpus: from.gpus })),
              `, where the leanest plan needs ${gib(from.memory_bytes)}`,
            ]
          : []),
        ".",
      ),
    );
  }
  if (!answer.candidates && possible?.length) {
    lines.push(
      h(
        "p",
        {},
        "The nearest numbers of GPUs that have plans: ",
        ...possible.flatMap((gpus, i) => [i ? ", " : "", button(whole(gpus), () => apply({ gpus }))]),
        ".",
      ),
    );
  }
  if (!lines.length)
    lines.push(
      h(
        "ul",
        {},
        (explanation.text ?? []).slice(1, 6).map((line) => h("li", {}, line.trim())),
      ),
    );
  return lines;
}

const button = (text, onclick) => h("button", { type: "button", onclick }, text);
