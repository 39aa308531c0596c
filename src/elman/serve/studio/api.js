// Requests to the server. A key, where the server wants one, is kept for this tab only.

const KEY = "elman-key";

export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

export async function ask(path, body, { method = body === undefined ? "GET" : "POST", signal } = {}) {
  const response = await send(path, body, method, signal);
  return response.status === 204 ? null : response.json();
}

// The pieces of a completion as they are written.
export async function* stream(body, signal) {
  const response = await send("/v1/completions", { ...body, stream: true }, "POST", signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const piece = JSON.parse(data);
      if (piece.error) throw new ApiError(500, piece.error.message);
      yield piece.choices[0]?.text ?? "";
    }
  }
}

async function send(path, body, method, signal) {
  const headers = {};
  const key = sessionStorage.getItem(KEY);
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the server does not answer: was it ended?");
  }
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({ error: { message: `the server answered ${response.status}` } }));
  throw new ApiError(response.status, error.message, error.code);
}
