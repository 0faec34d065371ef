// Round numbers along an axis.

const STEPS = [ // of a decade
  [1],
  [1, 2, 5],
  [1, 1.5, 2, 3, 4, 5, 7],
  [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9],
];

/** From 0 to `most`, about `count` of them. */
export function roundTicks(most, count) {
  const rough = most / count;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = decade * [1, 2, 2.5, 5, 10].find((size) => size * decade >= rough);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/** Within `low` and `high` on a logarithmic axis: powers of ten, with more between them if these are few. */
export function logTicks(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const decades = Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
  for (const steps of STEPS) {
    const ticks = decades
      .flatMap((decade) => steps.map((step) => decade * step))
      .filter((tick) => tick >= low * 0.9999 && tick <= high * 1.0001);
    if (ticks.length >= 4) return ticks;
  }
  return [low, high];
}
