// @ts-check
/* What a page asks the server that it came from. */

/** What the server refused, or status 0 if it is not there. */
export class RequestError extends Error {
  /** @param {string} message @param {number} status of the answer */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * Ask the server. Raises RequestError.
 * @param {string} address
 * @param {unknown} [body]
 * @param {string} [method]
 * @returns {Promise<any>} what it answers
 */
export async function request(address, body, method = body === undefined ? "GET" : "POST") {
  /** @type {Record<string, string>} */
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const sent = body === undefined ? null : JSON.stringify(body);
  const keepalive = sent !== null && sent.length < 60000;
  let answer;
  try {
    answer = await fetch(address, { method, headers, body: sent, keepalive });
  } catch {
    throw new RequestError("the server does not answer", 0);
  }
  const said = await answer.json().catch(() => ({}));
  if (answer.ok) return said;
  if (answer.status === 401) throw new RequestError("the desk was started again; load this page again and enter its token", 401);
  throw new RequestError(said.error?.message ?? `the server answered ${answer.status}`, answer.status);
}
