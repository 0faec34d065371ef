// Requests to the server. Asking again under the same name aborts the earlier request.

const RETRIES = 20;
const SILENT = { message: "The server does not answer. Is traincast serve still running?" };
const pending = new Map(); // name → its AbortController

/** What went wrong, with one line for each problem and the field it is about. */
export class Refused extends Error {
  constructor(error, status) {
    super(error.message);
    this.status = status;
    const only = [error.message.replace(/^(search|state|plan): /, "")];
    this.problems = error.problems?.length > 1 ? error.problems : only;
    this.fields = error.fields ?? [];
  }
}

/** Ask; resolves to null where a later request took its place. `onBusy` is called when the server is busy. */
export async function ask(path, body, { name = path, onBusy = () => {} } = {}) {
  pending.get(name)?.abort();
  const abort = new AbortController();
  pending.set(name, abort);
  const headers = { "Content-Type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body), signal: abort.signal };
  try {
    for (let tries = 0; ; tries += 1) {
      const response = await fetch(path, options);
      const content = await response.json().catch(() => null);
      if (response.ok && content !== null) return content;
      if (response.status !== 503 || tries === RETRIES) throw refusal(content, response.status);
      onBusy(content?.error?.message ?? "The server is busy.");
      await pause(1000 * Number(response.headers.get("Retry-After") ?? 1), abort.signal);
    }
  } catch (error) {
    if (abort.signal.aborted) return null;
    throw error instanceof Refused ? error : new Refused(SILENT, 0);
  } finally {
    if (pending.get(name) === abort) pending.delete(name);
  }
}

/** Read what does not depend on a question. */
export async function look(path) {
  const response = await fetch(path).catch(() => {
    throw new Refused(SILENT, 0);
  });
  const content = await response.json().catch(() => null);
  if (!response.ok || content === null) throw refusal(content, response.status);
  return content;
}

/** Give up what was asked under some names: it resolves to null, and the server ends its search. */
export const cancel = (...names) => names.forEach((name) => pending.get(name)?.abort());

function refusal(content, status) {
  return new Refused(content?.error ?? { message: `The server answered with status ${status}.` }, status);
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}
