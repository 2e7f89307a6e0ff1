/* What a page asks the server that it came from. */

/** Ask the server; what it answers, or an Error with its message and `status`, 0 if it is not there. */
async function call(address, body, method = body === undefined ? "GET" : "POST") {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const sent = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(address, { method, headers, body: sent, keepalive: Boolean(sent) && sent.length < 60000 });
  } catch {
    throw Object.assign(new Error("the server does not answer"), { status: 0 });
  }
  const said = await answer.json().catch(() => ({}));
  if (answer.ok) return said;
  const message = said.error?.message ?? `the server answered ${answer.status}`;
  throw Object.assign(new Error(message), { status: answer.status });
}
