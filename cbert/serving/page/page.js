// The page's state, what it asks of the server, and the link that restores it.

import { makeSearch, showCards } from "./cards.js";
import { debounce } from "./elements.js";
import { makeForm } from "./form.js";
import { describe } from "./garments.js";
import { makePanel, showEffects } from "./ranking.js";
import { get, post } from "./server.js";

const LISTED = 8;
const find = (id) => document.getElementById(id);

let schema;
let state = { items: [], context: {} }; // items: [{name, hidden}]
let asking = new AbortController();
let showForm;
let complaint; // What is wrong with the link, until something is changed.
const panels = {};

async function start() {
  schema = await get("schema");
  const titles = schema.models.map(({ method }) => title(method));
  find("about").textContent =
    `${titles.join(" beside ")}, ${schema.items.toLocaleString("en")} items, ${schema.features.length} context features`;
  find("set-title").textContent = `The ${schema.kind}`;
  for (const model of schema.models) {
    panels[model.model] = makePanel(find("panels"), { ...model, title: title(model.method) }, add);
  }
  find("panels").classList.toggle("two", schema.models.length > 1);
  showForm = makeForm(find("features"), schema.features, (name, value) => {
    if (value === undefined) delete state.context[name];
    else state.context[name] = value;
    changed();
  });
  const taken = () => (schema.kind === "set" ? state.items.map(({ name }) => name) : []);
  makeSearch(find("add"), { add, taken, failed: showError });
  find("example").addEventListener("click", () => replace(exampleState()));
  find("forget").addEventListener("click", () => replace({ ...state, context: {} }));
  find("link").addEventListener("click", copyLink);
  window.addEventListener("hashchange", restore);
  restore();
}

function title(method) {
  return `[${method === "none" ? "None" : method.toUpperCase()}]`;
}

function exampleState() {
  const { items, context } = schema.example;
  return { items: items.map((name) => ({ name, hidden: false })), context: { ...context } };
}

function replace(next) {
  state = next;
  showForm(state.context);
  changed();
}

function changed() {
  complaint = undefined;
  document.body.dataset.state = "asking";
  showCards(find("cards"), state.items, changed);
  askSoon();
}

function add(name) {
  const known = schema.kind === "set" && state.items.find((item) => item.name === name);
  if (known) known.hidden = false;
  else state.items.push({ name, hidden: false });
  changed();
}

// A set has no places: a hidden card is left out and one more is asked for.
function question() {
  const items = schema.kind === "set"
    ? state.items.filter(({ hidden }) => !hidden).map(({ name }) => name)
    : state.items.map(({ name, hidden }) => (hidden ? null : name));
  return { items, context: state.context };
}

const askSoon = debounce(120, ask);

async function ask() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const asked = question();
  writeLink();
  try {
    const k = Math.min(LISTED, schema.items);
    const found = await Promise.all(
      schema.models.map(({ model }) => post("complete", { model, ...asked, k }, signal)),
    );
    if (signal.aborted) return;
    showError(complaint);
    showRanking(found);
    if (asked.items.filter((name) => name === null).length > 1) {
      find("explained").textContent = "Shown when no more than one card is hidden.";
      showEffects(find("bars"), {});
      find("caution").hidden = true;
      return;
    }
    const [first] = found[0].predictions[0];
    const explained = await post("explain", { ...asked, item: first.item }, signal);
    if (!signal.aborted) showExplanation(explained);
  } catch (error) {
    if (!signal.aborted) showError(error);
  } finally {
    if (!signal.aborted) document.body.dataset.state = "answered";
  }
}

function showRanking(found) {
  const hidden = state.items.filter((item) => item.hidden).map(({ name }) => name);
  const lists = found.map(({ predictions }) => predictions[0]);
  const scale = Math.max(...lists.flat().map(({ probability }) => probability));
  schema.models.forEach(({ model }, place) => panels[model](lists[place], scale, hidden));
  find("asked").textContent = asks(hidden.length);
  const { unknown_items: items, unknown_context: context } = found[0];
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

function asks(hidden) {
  if (!hidden) return `What would come next to this ${schema.kind}, among all items.`;
  if (schema.kind === "set") return "What the hidden card may be, given the visible ones.";
  return hidden > 1 ? "What the first hidden card may be." : "What the hidden card may be.";
}

function showExplanation({ item, features, outside_training: outside, uses_context: uses }) {
  find("explained").textContent = uses
    ? `Log-odds of “${describe(item).title}”, the first prediction: with each feature as given, minus with it not known.`
    : `${title(schema.models[0].method)} does not read the context.`;
  showEffects(find("bars"), uses ? features : {});
  find("caution").hidden = !(uses && outside);
  find("caution").textContent =
    "Training withheld no features, so a context with one left out may be unlike what the model has seen: take these as hints.";
}

const announce = debounce(600, (words) => { find("notice").textContent = words; });

function showError(error) {
  find("error").hidden = !error;
  find("error").textContent = error?.message ?? "";
  find("ranking").classList.toggle("stale", Boolean(error));
  find("effects").classList.toggle("stale", Boolean(error));
}

function writeLink() {
  const { items, context } = state;
  const hidden = items.flatMap((item, place) => (item.hidden ? [place] : []));
  const written = JSON.stringify({ items: items.map(({ name }) => name), hidden, context });
  history.replaceState(null, "", `#${encodeURIComponent(written)}`);
}

function readLink() {
  const { items, hidden = [], context = {} } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  if (!items.every((name) => typeof name === "string") || typeof context !== "object") throw new Error();
  return { items: items.map((name, place) => ({ name, hidden: hidden.includes(place) })), context: { ...context } };
}

function restore() {
  if (location.hash.length < 2) return replace(exampleState());
  try {
    replace(readLink());
  } catch {
    replace(exampleState());
    complaint = new Error("the link is damaged; this is the example instead");
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
