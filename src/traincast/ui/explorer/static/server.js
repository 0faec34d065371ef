// What the server is asked. The latest question wins: asking again under the same name aborts what is under way.

const RETRIES = 20;
const SILENT = { message: "The server does not answer. Is traincast serve still running?" };
const underWay = new Map();

/** What went wrong, with one line for each problem and the field it is about. */
export class Refused extends Error {
  constructor(error, status) {
    super(error.message);
    this.status = status;
    this.problems = error.problems?.length > 1 ? error.problems : [error.message.replace(/^(search|state|plan): /, "")];
    this.fields = error.fields ?? [];
  }
}

/** Ask; resolves to null where a later question took its place. `busy` hears that the server asks to wait. */
export async function ask(path, body, { name = path, busy = () => {} } = {}) {
  underWay.get(name)?.abort();
  const abort = new AbortController();
  underWay.set(name, abort);
  try {
    for (let tries = 0; ; tries += 1) {
      const response = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal: abort.signal,
      });
      const told = await response.json().catch(() => null);
      if (response.ok && told !== null) return told;
      if (response.status !== 503 || tries === RETRIES) throw refusal(told, response.status);
      busy(told?.error?.message ?? "The server is busy.");
      await pause(1000 * Number(response.headers.get("Retry-After") ?? 1), abort.signal);
    }
  } catch (error) {
    if (abort.signal.aborted) return null;
    throw error instanceof Refused
      ? error
      : new Refused(SILENT, 0);
  } finally {
    if (underWay.get(name) === abort) underWay.delete(name);
  }
}

/** Read what does not depend on a question. */
export async function look(path) {
  const response = await fetch(path).catch(() => {
    throw new Refused(SILENT, 0);
  });
  const told = await response.json().catch(() => null);
  if (!response.ok || told === null) throw refusal(told, response.status);
  return told;
}

function refusal(told, status) {
  return new Refused(told?.error ?? { message: `The server answered with status ${status}.` }, status);
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}
