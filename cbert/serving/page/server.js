// Requests to the server; a refusal is an Error with the server's sentence.

export async function get(path) {
  return responseOf(() => fetch(path));
}

export async function post(path, body, signal) {
  return responseOf(() => fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  }));
}

async function responseOf(request) {
  let response;
  try {
    response = await request();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server cannot be reached; is it still running?");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.error ?? `the server answered ${response.status}`);
  return body;
}
