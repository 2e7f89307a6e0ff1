// @ts-check
/* Requests to the server of the page, and its events. */

/** A refusal by the server, or status 0 if it does not answer. */
export class RequestError extends Error {
  /** @param {string} message @param {number} status of the answer */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Send a request, with `body` as JSON. Raises RequestError. @param {string} address @param {unknown} [body] @param {string} [method] */
export async function fetchAnswer(address, body, method = body === undefined ? "GET" : "POST") {
  /** @type {Record<string, string>} */
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const sent = body === undefined ? null : JSON.stringify(body);
  const keepalive = sent !== null && sent.length < 60000;
  const answer = await fetch(address, { method, headers, body: sent, keepalive })
    .catch(() => { throw new RequestError("the server does not answer", 0); });
  if (answer.ok) return answer;
  if (answer.status === 401) throw new RequestError("the desk was started again; load this page again and enter its token", 401);
  const { error } = await answer.json().catch(() => ({}));
  throw new RequestError(error?.message ?? `the server answered ${answer.status}`, answer.status);
}

/** Send a request and return the JSON that answers it. Raises RequestError. @param {string} address @param {unknown} [body]
    @param {string} [method] @returns {Promise<any>} */
export async function request(address, body, method) {
  const answer = await fetchAnswer(address, body, method);
  return answer.json().catch(() => ({}));
}

/** Call handlers by the names of events of the server, while the page is seen: a browser has few connections for all of its tabs.
    @param {string} address @param {Record<string, (data: any, events: EventSource) => void>} handlers */
export function listen(address, handlers) {
  const source = {
    events: /** @type {EventSource | null} */ (null),
    close() {
      document.removeEventListener("visibilitychange", follow);
      source.events?.close();
    },
  };
  function follow() {
    if (document.visibilityState === "hidden") {
      source.events?.close();
      source.events = null;
    } else if (!source.events) {
      const events = source.events = new EventSource(address);
      for (const [name, handle] of Object.entries(handlers)) {
        events.addEventListener(name, (event) => handle(event instanceof MessageEvent ? JSON.parse(event.data) : null, events));
      }
    }
  }
  document.addEventListener("visibilitychange", follow);
  follow();
  return source;
}
