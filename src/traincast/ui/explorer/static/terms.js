// What the words of the page mean, beside the knobs, whose meanings the catalogue has.

import { h } from "./dom.js";

const MEMORY = "memory of the fullest GPU, against what a GPU has";
const MFU = "model FLOPs utilisation: the model's arithmetic against the peak of the GPUs";
const MEANINGS = {
  step: "time of one optimizer step",
  "90%": "the 90% interval of the time, from errors of predictions against measured runs",
  memory: MEMORY,
  Memory: MEMORY,
  fits: "probability that the plan fits in memory, from errors against measured memory",
  MFU,
  Utilisation: MFU,
  Throughput: "tokens that one GPU trains on in a second",
  "The whole run": "time until all tokens of the training run have been seen",
  Cost: "GPU-hours of the whole run at the system's price of a GPU-hour",
  strategy: "how a layer is split over GPUs: 1d (by heads and MLP columns), summa (in two dimensions), or with the sequence: ring, ulysses, hybrid",
  fast: "how many ranks of each group share a fast domain, such as the GPUs of a node",
};

/** What a column or figure means; a unit in brackets and the group of fast_ are no part of its name. */
export const meaning = (name, catalog) =>
  MEANINGS[name.replace(/ [[(].*|(?<=^fast)_.*/, "")] ?? catalog?.locks.find((lock) => lock.name === name)?.meaning;

/** The head of a column, with its meaning for a pointer. */
export const head = (name, catalog, of = "th") => h(of, { scope: "col", title: meaning(name, catalog) }, name);

/** Names and meanings as rows of a list. */
export const glossary = (names, catalog) =>
  names
    .filter((name) => meaning(name, catalog))
    .flatMap((name) => [h("dt", name), h("dd", meaning(name, catalog))]);
