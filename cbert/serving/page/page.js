// The page's parts that do not depend on what the model reads: the context, the queries to the
// server, the feature importance, what is read of the context, and the link.
//
// A view is the rest. `show(state)` draws a state, `link()` gives it back, and `example()` is
// the one to start from. `request()` is the query for each model, or says in `missing` what it
// lacks, and `showResults(responses)` draws its responses and says what to write beside them.
// `least` is the least difference at which a bar of the feature importance is full.

import { showImportance, showReading } from "./bars.js";
import { debounce, element, find, label } from "./elements.js";
import { makeForm } from "./form.js";
import { makeItems } from "./items.js";
import { makeCopyButton, readLink, writeLink } from "./link.js";
import { get, post } from "./server.js";
import { makeText } from "./text.js";

let schema;
let view;
let context = new Map();
let request = new AbortController();
let showForm;
let linkError; // The mistake in the link, until something is changed.

async function start() {
  schema = await get("schema");
  for (const model of schema.models) model.title = title(model, schema.models);
  const kind = schema.kind === "text" ? "text" : "items";
  find("subject").append(find(`${kind}-view`).content);
  find("panels").classList.toggle("two", schema.models.length > 1);
  view = (kind === "text" ? makeText : makeItems)(schema, changed);
  find("heading").textContent = view.heading;
  document.title = `cbert: ${view.heading.toLowerCase()}`;
  find("subject-title").textContent = view.title;
  const features = schema.features.length;
  find("about").textContent = [
    schema.models.map((model) => model.title).join(" beside "), view.about, `${features} context feature${features === 1 ? "" : "s"}`,
  ].join(", ");
  showForm = makeForm(find("features"), schema.features, (name, value) => {
    if (value === undefined) context.delete(name);
    else context.set(name, value);
    changed();
  });
  find("example").addEventListener("click", () => show(example()));
  find("forget").addEventListener("click", () => show({ ...view.link(), context: {} }));
  describeReading(schema.models[0]);
  makeCopyButton(find("link"));
  window.addEventListener("hashchange", restore);
  restore();
}

// The method; of two runs of one method, also which of the server's two models it is.
function title({ model, method }, models) {
  const alone = models.filter((other) => other.method === method).length === 1;
  return `[${method === "none" ? "None" : method.toUpperCase()}]${alone ? "" : ` ${model}`}`;
}

const READINGS = new Map(Object.entries({
  attention: ["Attention", (model) =>
    `The fraction of its attention that ${model} gives to each feature: the mean over blocks, heads and positions.`],
  gates: ["Gates", (model) =>
    `How far each gate of ${model} is open, 0 being closed and 1 open: the mean over its entries and positions.`],
}));

function describeReading({ shows, title: model }) {
  find("reading").hidden = !shows;
  if (!shows) return;
  const [heading, sentence] = READINGS.get(shows);
  find("reading-title").textContent = heading;
  find("read").textContent = sentence(model);
}

function example() {
  return { ...view.example(), context: schema.example.context };
}

function show(state) {
  view.show(state);
  context = new Map(Object.entries(state.context ?? {}));
  showForm(context);
  changed();
}

function restore() {
  try {
    show(readLink() ?? example());
  } catch {
    show(example());
    linkError = new Error("the link is damaged; this is the example instead");
  }
}

function changed() {
  linkError = undefined;
  request.abort(); // Or its response would be shown as that of what has just been changed.
  document.body.dataset.state = "waiting";
  predictSoon();
}

const predictSoon = debounce(120, predict);

async function predict() {
  request = new AbortController();
  const { signal } = request;
  const given = { context: Object.fromEntries(context) };
  writeLink({ ...view.link(), ...given });
  try {
    const { path, body, k, missing } = view.request();
    find("panels").hidden = Boolean(missing);
    if (missing) {
      showError(linkError);
      showWords({ query: missing, notes: [], said: missing }, {});
      showExplanation("Shown beside predictions.");
      showReading(find("reading-bars"), "", {});
      return;
    }
    const responses = await Promise.all(
      schema.models.map(({ model }) => post(path, { model, ...body, ...given, k }, signal)),
    );
    if (signal.aborted) return;
    showError(linkError);
    const shown = view.showResults(responses);
    showWords(shown, responses[0].unknown_context);
    const [explanation, reading] = await Promise.all([
      shown.explain && post("explain", { ...body, ...given, ...shown.explain }, signal),
      schema.models[0].shows && post("reading", { ...body, ...given }, signal),
    ]);
    if (signal.aborted) return;
    showExplanation(shown.unexplained, explanation);
    if (reading) showReading(find("reading-bars"), reading.what, reading.values);
  } catch (error) {
    if (!signal.aborted) showError(error);
  } finally {
    if (!signal.aborted) document.body.dataset.state = "settled";
  }
}

function showWords({ query, notes, said }, unknown) {
  find("query").textContent = query;
  const lines = [...notes, ...Object.entries(unknown).map(([name, values]) =>
    `${label(name)}: ${values.join(", ")} was not in the training data; it counts as an unknown value.`)];
  find("notes").replaceChildren(...lines.map((line) => element("li", {}, line)));
  announce(said);
}

function showExplanation(unexplained, explanation = { features: {} }) {
  const { features, outside_training: outside, uses_context: uses } = explanation;
  const prediction = uses && view.explained(explanation);
  find("explained").textContent = unexplained ?? (uses
    ? `${prediction}: with each feature as given, minus with it not known.`
    : `${schema.models[0].title} does not read the context.`);
  showImportance(find("bars"), uses ? features : {}, view.least);
  find("caution").hidden = !(uses && outside);
  find("caution").textContent =
    "Training dropped no features, so the model may never have seen a context with one missing: take these as hints.";
}

const announce = debounce(600, (words) => { find("notice").textContent = words; });

function showError(error) {
  find("error").hidden = !error;
  find("error").textContent = error?.message ?? "";
  find("ranking").classList.toggle("stale", Boolean(error));
  find("importance").classList.toggle("stale", Boolean(error));
  find("reading").classList.toggle("stale", Boolean(error));
}

start().catch(showError);
