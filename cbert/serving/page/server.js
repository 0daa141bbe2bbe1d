// Questions to the server; what it refuses is an Error with its sentence.

export async function get(path) {
  return answer(() => fetch(path));
}

export async function post(path, body, signal) {
  return answer(() => fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  }));
}

async function answer(ask) {
  let response;
  try {
    response = await ask();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server cannot be reached; is it still running?");
  }
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(found.error ?? `the server answered ${response.status}`);
  return found;
}
