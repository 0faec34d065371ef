// Numbers as people read them. Inside, everything is in SI: FLOP, byte, second.

const PREFIXES = [..."EPTGMk mµn"].map((letter, i) => [10 ** (18 - 3 * i), letter.trim()]);
const PREFIXED = ["byte/s", "FLOP/s", "s", "token/s", "FLOP"]; // units
const FORMATS = new Map(); // a formatter is made once, since that takes longer than what it does
export const GIB = 2 ** 30;

/** A number to `digits` significant digits and all before the point, thousands parted. */
export function number(value, digits = 3, least = 1) {
  if (!Number.isFinite(value)) return "–";
  const significant = { minimumSignificantDigits: least, maximumSignificantDigits: digits };
  const options = { ...significant, maximumFractionDigits: 0, roundingPriority: "morePrecision" };
  const key = `${least} ${digits}`;
  if (!FORMATS.has(key)) FORMATS.set(key, new Intl.NumberFormat("en", options));
  return FORMATS.get(key).format(value);
}

/** A number with zeros at its end, for columns. */
export const fixed = (value, digits = 3) => number(value, digits, digits);

/** The prefix that suits a value, and its size: `[1e9, "G"]`. */
export const prefix = (value) =>
  PREFIXES.find(([unit]) => Math.abs(value) >= unit * 0.9995) ?? PREFIXES.at(-1);

/** The unit a figure in an SI unit is shown in, with its size in SI: `["GB/s", 1e9]`. */
export function shownIn(value, unit) {
  if (unit === "byte") return ["GiB", GIB];
  if (!PREFIXED.includes(unit)) return [unit ?? "", 1];
  const [size, letter] = value ? prefix(value) : [1, ""];
  return [`${letter}${unit === "byte/s" ? "B/s" : unit}`, size];
}

/** A quantity with its unit. */
export function quantity(value, unit, digits = 3) {
  const [shown, size] = shownIn(value, unit);
  return Number.isFinite(value) ? `${number(value / size, digits)} ${shown}`.trimEnd() : "–";
}

export const seconds = (value, digits = 3) => quantity(value, "s", digits);
/** Bytes rounded up to quarters of a GiB. */
export const quarterGibs = (bytes) => (Math.ceil((4 * bytes) / GIB) * GIB) / 4;
export const gib = (value, digits = 3) => `${number(value / GIB, digits)} GiB`;
export const whole = (value) => number(Math.round(value), 1);
export const percent = (share, digits = 2) => `${number(100 * share, digits)}%`;

/** A probability: never 0% nor 100%. */
export const chance = (share) => (share < 0.005 ? "<1%" : share > 0.995 ? ">99%" : `${Math.round(100 * share)}%`);

/** A change relative to 1, with its sign: `−7%`. */
export const change = (share, digits = 2) =>
  Math.abs(share) < 5e-5 ? "0%" : `${share < 0 ? "−" : "+"}${percent(Math.abs(share), digits)}`;

/** A large count, with its prefix: `70.6 G`. */
export function large(value, digits = 3) {
  const [size, letter] = Math.abs(value) >= 1e4 ? prefix(value) : [1, ""];
  return `${number(value / size, digits)} ${letter}`.trimEnd();
}

/** Days as days, or years where they are many, or hours where they are few. */
export function days(value) {
  if (value === null || value === undefined) return "–";
  if (value < 2) return `${number(value * 24)} h`;
  return value < 1000 ? `${number(value)} days` : `${number(value / 365.25)} years`;
}
