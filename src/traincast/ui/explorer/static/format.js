// Numbers as people read them. Inside, everything is in SI: FLOP, byte, second.

const PREFIXES = [..."EPTGMk mµn"].map((letter, i) => [10 ** (18 - 3 * i), letter.trim()]);
const FORMATS = new Map();
export const GIB = 2 ** 30;

/** A number to `digits` significant digits, thousands parted, without an exponent. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const places = Math.max(0, Math.min(12, digits - 1 - Math.floor(Math.log10(Math.abs(value)))));
  return written(value, 0, places);
}

/** A number to `digits` significant digits, with zeros at its end: for columns. */
export function fixed(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value) || 1)));
  return written(value, places, places);
}

/** Thousands parted by commas; a formatter is made once, since that takes longer than what it does. */
function written(value, least, most) {
  const key = `${least} ${most}`;
  const options = { minimumFractionDigits: least, maximumFractionDigits: most };
  if (!FORMATS.has(key)) FORMATS.set(key, new Intl.NumberFormat("en", options));
  return FORMATS.get(key).format(value);
}

/** The prefix that suits a value, and its size: `[1e9, "G"]`. */
export function prefix(value) {
  const size = Math.abs(value);
  return PREFIXES.find(([unit]) => size >= unit * 0.9995) ?? PREFIXES[PREFIXES.length - 1];
}

/** The unit a figure in an SI unit is shown in, with its size in SI: `["GB/s", 1e9]`. */
export function shownIn(value, unit) {
  if (unit === "byte") return ["GiB", GIB];
  if (!["byte/s", "FLOP/s", "s", "token/s", "FLOP"].includes(unit)) return [unit ?? "", 1];
  const [size, letter] = value ? prefix(value) : [1, ""];
  return [`${letter}${unit === "byte/s" ? "B/s" : unit}`, size];
}

/** A quantity with its unit. */
export function quantity(value, unit, digits = 3) {
  if (value === null || value === undefined) return "–";
  const [shown, size] = shownIn(value, unit);
  return shown ? `${number(value / size, digits)} ${shown}` : number(value, digits);
}

export const seconds = (value, digits = 3) => quantity(value, "s", digits);
/** Bytes rounded up to quarters of a GiB. */
export const quarterGibs = (bytes) => (Math.ceil((4 * bytes) / GIB) * GIB) / 4;
export const gib = (value, digits = 3) => `${number(value / GIB, digits)} GiB`;
export const whole = (value) => written(Math.round(value), 0, 0);
export const percent = (share, digits = 2) => `${number(100 * share, digits)}\u00a0%`;

/** A change relative to 1, with its sign: `−7 %`. */
export function change(share, digits = 2) {
  const text = percent(Math.abs(share), digits);
  return Math.abs(share) < 5e-5 ? "0 %" : `${share < 0 ? "−" : "+"}${text}`;
}

/** A large count, with its prefix: `70.6 G`. */
export function large(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const [size, letter] = Math.abs(value) < 1e4 ? [1, ""] : prefix(value);
  return `${number(value / size, digits)}${letter && ` ${letter}`}`;
}

/** Days as days, or years where they are many, or hours where they are few. */
export function days(value) {
  if (value === null || value === undefined) return "–";
  if (value < 2) return `${number(value * 24)} h`;
  return value < 1000 ? `${number(value)} days` : `${number(value / 365.25)} years`;
}
