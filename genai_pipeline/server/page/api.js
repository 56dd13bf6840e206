// Requests to the server this page comes from, with the key of this tab, and its errors as one class.

import { readEvents } from "./sse.js";

const KEY = "api-key";

/** The key of this browser tab; forgotten with it. */
export const apiKey = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** Why a request failed, as the server says it. */
export class ApiProblem extends Error {
  constructor(message, { status = 0, type = null, code = null, param = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, type, code, param, retryAfter });
  }
}

/** The problem in an error object of the interface. */
export function problemOf(error, status = 0, retryAfter = null) {
  const { message, type, code, param } = error ?? {};
  return new ApiProblem(message ?? "the server gave no reason", { status, type, code, param, retryAfter });
}

/** A JSON answer. Throws ApiProblem. */
export async function getJson(path) {
  const response = await request(path);
  return response.json();
}

/** The same from the administration, which may be elsewhere or off. Throws ApiProblem. */
export async function getAdmin(path) {
  try {
    return await getJson(`admin/${path}`);
  } catch (problem) {
    if (problem.code !== "not_found") throw problem;
    throw new ApiProblem(
      "graphs and figures belong to the administration, which is switched off here or has a port of its own",
    );
  }
}

/** The chunks of a streamed answer; what comes as an error is thrown as ApiProblem, also in mid-stream. */
export async function* streamJson(path, body, signal) {
  const response = await request(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  let whole = false;
  for await (const data of received(readEvents(response.body))) {
    if (data === "[DONE]") {
      whole = true;
      break;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw problemOf(chunk.error);
    yield chunk;
  }
  if (!whole) throw new ApiProblem("the connection ended before the answer did", { code: "connection_lost" });
}

async function* received(events) {
  try {
    yield* events;
  } catch (error) {
    throw lost(error, "the connection was lost while the answer came");
  }
}

async function request(path, options = {}) {
  const key = apiKey.get();
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    throw lost(error, "the server cannot be reached; is it still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const error = body.error ?? { message: `the server answered ${response.status}` };
  throw problemOf(error, response.status, response.headers.get("retry-after"));
}

function lost(error, message) {
  return error.name === "AbortError" || error instanceof ApiProblem
    ? error
    : new ApiProblem(message, { code: "connection_lost" });
}
