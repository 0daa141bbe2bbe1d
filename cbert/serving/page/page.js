// The page's state, its queries to the server, and the link that restores it.

import { makeSearch, showCards } from "./cards.js";
import { debounce } from "./elements.js";
import { makeForm } from "./form.js";
import { describe } from "./garments.js";
import { makePanel, showImportance } from "./ranking.js";
import { get, post } from "./server.js";

const LISTED = 8;
const find = (id) => document.getElementById(id);

let schema;
let state = { items: [], context: new Map() }; // items: [{name, masked}]
let request = new AbortController();
let showForm;
let linkError; // The mistake in the link, until something is changed.
const panels = new Map();

async function start() {
  schema = await get("schema");
  const titles = schema.models.map(({ method }) => title(method));
  find("about").textContent =
    `${titles.join(" beside ")}, ${schema.items.toLocaleString("en")} items, ${schema.features.length} context features`;
  find("set-title").textContent = `The ${schema.kind}`;
  for (const model of schema.models) {
    panels.set(model.model, makePanel(find("panels"), { ...model, title: title(model.method) }, add));
  }
  find("panels").classList.toggle("two", schema.models.length > 1);
  showForm = makeForm(find("features"), schema.features, (name, value) => {
    if (value === undefined) state.context.delete(name);
    else state.context.set(name, value);
    changed();
  });
  const taken = () => (schema.kind === "set" ? state.items.map(({ name }) => name) : []);
  makeSearch(find("add"), { add, taken, failed: showError });
  find("example").addEventListener("click", () => replace(exampleState()));
  find("forget").addEventListener("click", () => replace({ ...state, context: new Map() }));
  find("link").addEventListener("click", copyLink);
  window.addEventListener("hashchange", restore);
  restore();
}

function title(method) {
  return `[${method === "none" ? "None" : method.toUpperCase()}]`;
}

function exampleState() {
  const { items, context } = schema.example;
  return { items: items.map((name) => ({ name, masked: false })), context: new Map(Object.entries(context)) };
}

function replace(next) {
  state = next;
  showForm(state.context);
  changed();
}

function changed() {
  linkError = undefined;
  document.body.dataset.state = "waiting";
  showCards(find("cards"), state.items, changed);
  predictSoon();
}

function add(name) {
  const known = schema.kind === "set" && state.items.find((item) => item.name === name);
  if (known) known.masked = false;
  else state.items.push({ name, masked: false });
  changed();
}

// A set has no positions: masked cards are left out and the server appends one position.
function query() {
  const items = schema.kind === "set"
    ? state.items.filter(({ masked }) => !masked).map(({ name }) => name)
    : state.items.map(({ name, masked }) => (masked ? null : name));
  return { items, context: Object.fromEntries(state.context) };
}

const predictSoon = debounce(120, predict);

async function predict() {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const body = query();
  writeLink();
  try {
    const k = Math.min(LISTED, schema.items);
    const completions = await Promise.all(
      schema.models.map(({ model }) => post("complete", { model, ...body, k }, signal)),
    );
    if (signal.aborted) return;
    showError(linkError);
    showRanking(completions);
    if (body.items.filter((name) => name === null).length > 1) {
      find("explained").textContent = "Shown when no more than one card is masked.";
      showImportance(find("bars"), {});
      find("caution").hidden = true;
      return;
    }
    const [first] = completions[0].predictions[0];
    const explanation = await post("explain", { ...body, item: first.item }, signal);
    if (!signal.aborted) showExplanation(explanation);
  } catch (error) {
    if (!signal.aborted) showError(error);
  } finally {
    if (!signal.aborted) document.body.dataset.state = "settled";
  }
}

function showRanking(completions) {
  const masked = state.items.filter((item) => item.masked).map(({ name }) => name);
  const lists = completions.map(({ predictions }) => predictions[0]);
  const scale = Math.max(...lists.flat().map(({ probability }) => probability));
  schema.models.forEach(({ model }, index) => panels.get(model)(lists[index], scale, masked));
  find("query").textContent = describeQuery(masked.length);
  const { unknown_items: items, unknown_context: context } = completions[0];
  const notes = [
    ...items.map((name) => `${name} is not in the vocabulary; it counts as an unknown item.`),
    ...Object.entries(context).map(([name, values]) =>
      `${name.replaceAll("_", " ")}: ${values.join(", ")} was not in the training data; it counts as an unknown value.`),
  ];
  find("notes").replaceChildren(...notes.map((note) => {
    const line = document.createElement("li");
    line.textContent = note;
    return line;
  }));
  announce(`Most probable: ${lists[0].slice(0, 3).map(({ item }) => describe(item).title).join(", ")}`);
}

function describeQuery(masked) {
  if (!masked) return `These items would come next in this ${schema.kind}.`;
  if (schema.kind === "set") return "The masked card may be one of these, given the visible ones.";
  return `The ${masked > 1 ? "first " : ""}masked card may be one of these.`;
}

function showExplanation({ item, features, outside_training: outside, uses_context: uses }) {
  find("explained").textContent = uses
    ? `Log-odds of “${describe(item).title}”, the first prediction: with each feature as given, minus with it not known.`
    : `${title(schema.models[0].method)} does not read the context.`;
  showImportance(find("bars"), uses ? features : {});
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
}

function writeLink() {
  const { items, context } = state;
  const masked = items.flatMap((item, index) => (item.masked ? [index] : []));
  const written = JSON.stringify({
    items: items.map(({ name }) => name), masked, context: Object.fromEntries(context),
  });
  history.replaceState(null, "", `#${encodeURIComponent(written)}`);
}

function readLink() {
  const { items, masked = [], context = {} } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  if (!items.every((name) => typeof name === "string") || typeof context !== "object") throw new Error();
  return {
    items: items.map((name, index) => ({ name, masked: masked.includes(index) })),
    context: new Map(Object.entries(context)),
  };
}

function restore() {
  if (location.hash.length < 2) return replace(exampleState());
  try {
    replace(readLink());
  } catch {
    replace(exampleState());
    linkError = new Error("the link is damaged; this is the example instead");
  }
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    find("link").textContent = "Link copied";
  } catch {
    find("link").textContent = "The address bar holds it";
  }
  setTimeout(() => { find("link").textContent = "Copy link"; }, 2000);
}

start().catch(showError);
