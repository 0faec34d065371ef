// Requests to the server. Asking again under the same name aborts the earlier request.

const RETRIES = 20;
const SILENT = "The server does not answer. Is traincast serve still running?";
const SILENT_PAUSE = 2; // seconds until a server that does not answer is asked again
const pending = new Map(); // name → its AbortController

/** What went wrong, with one line for each problem and the field it is about. */
export class Refused extends Error {
  constructor(error, status) {
    super(error.message);
    this.status = status;
    const only = [error.message.replace(/^(search|state|plan|figures): /, "")];
    this.problems = error.problems?.length > 1 ? error.problems : only;
  }
}

/** Ask; resolves to null where a later request took its place, or it was cancelled. A server that is busy or
    does not answer, such as one that is started again, is asked again, and `onBusy` told. Without a body,
    what does not depend on a question is read. */
export async function ask(path, body, { name = path, onBusy = () => {} } = {}) {
  pending.get(name)?.abort();
  const abort = new AbortController();
  pending.set(name, abort);
  const headers = { "Content-Type": "application/json" };
  const posted = body && { method: "POST", headers, body: JSON.stringify(body) };
  const options = { ...posted, signal: abort.signal };
  try {
    for (let tries = 0; ; tries += 1) {
      const response = await fetch(path, options).catch(() => null);
      if (abort.signal.aborted) return null;
      if (response === null) {
        onBusy(SILENT);
        await pause(1000 * SILENT_PAUSE, abort.signal);
        continue;
      }
      const content = await response.json().catch(() => null);
      if (response.ok && content !== null) return content;
      const { status, headers: answered } = response;
      const error = content?.error ?? { message: `The server answered with status ${status}.` };
      if (status !== 503 || tries === RETRIES) throw new Refused(error, status);
      onBusy(error.message);
      await pause(1000 * Number(answered.get("Retry-After") ?? 1), abort.signal);
    }
  } catch (error) {
    if (abort.signal.aborted) return null;
    throw error;
  } finally {
    if (pending.get(name) === abort) pending.delete(name);
  }
}

/** Give up what was asked under some names: it resolves to null, and the server ends its search. */
export const cancel = (...names) => names.forEach((name) => pending.get(name)?.abort());

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}
