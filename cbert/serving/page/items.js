// Sets and sequences: the cards, and the items that may stand at a masked one.

import { makeSearch, showCards } from "./cards.js";
import { element, find } from "./elements.js";
import { describe, picture } from "./garments.js";
import { makePanel, makeRanking } from "./ranking.js";

const LISTED = 8;

// See page.js for what a view is.
export function makeItems(schema, changed) {
  let items = []; // [{name, masked}]
  const isSet = schema.kind === "set";
  const hidden = () => items.filter(({ masked }) => masked);
  const rankings = schema.models.map((model) => {
    const [list, show] = makeRanking(`Predictions of ${model.title}`, face, fill);
    makePanel(find("panels"), model, list);
    return show;
  });

  function change() {
    showCards(find("cards"), items, change);
    changed();
  }
  function add(name) {
    const known = isSet && items.find((item) => item.name === name);
    if (known) known.masked = false;
    else items.push({ name, masked: false });
    change();
  }
  // A prediction of a sequence is one for its first masked card.
  function fill(name) {
    const card = isSet ? undefined : hidden()[0];
    if (!card) return add(name);
    Object.assign(card, { name, masked: false });
    change();
  }
  makeSearch(find("add"), { add, taken: () => (isSet ? items.map(({ name }) => name) : []) });

  return {
    heading: "What is missing?",
    title: `The ${schema.kind}`,
    about: `${schema.items.toLocaleString("en")} items`,
    least: 0.5, // Nats.
    example: () => ({ items: schema.example.items }),
    link: () => ({
      items: items.map(({ name }) => name),
      masked: items.flatMap(({ masked }, index) => (masked ? [index] : [])),
    }),
    show({ items: names, masked = [] }) {
      if (!names.every((name) => typeof name === "string")) throw new Error();
      items = names.map((name, index) => ({ name, masked: masked.includes(index) }));
      showCards(find("cards"), items, change);
    },
    // A set has no positions: masked cards are left out and the server appends one position.
    request: () => ({
      path: "complete",
      body: {
        items: isSet ? items.filter(({ masked }) => !masked).map(({ name }) => name)
          : items.map(({ name, masked }) => (masked ? null : name)),
      },
      k: Math.min(LISTED, schema.items),
    }),
    showResults(completions) {
      const masked = new Set(hidden().map(({ name }) => name));
      const lists = completions.map(({ predictions }) => predictions[0]);
      const scale = Math.max(...lists.flat().map(({ probability }) => probability));
      lists.forEach((predictions, index) => rankings[index](predictions.map(({ item, probability }) => (
        { name: item, probability, badge: masked.has(item) ? "masked" : undefined })), scale));
      const notes = completions[0].unknown_items.map((name) => `${name} is not in the vocabulary; it counts as an unknown item.`);
      if (completions[0].cut) notes.push("The sequence is longer than the model takes; only its latest items were read.");
      return {
        query: describeQuery(schema.kind, masked.size),
        notes,
        said: `Most probable: ${lists[0].slice(0, 3).map(({ item }) => item).join(", ")}`,
        ...(isSet || masked.size < 2 ? { explain: { item: lists[0][0].item } }
          : { unexplained: "Shown when no more than one card is masked." }),
      };
    },
    explained: ({ item }) => `Log-odds of “${item}”, the first prediction`,
  };
}

function face(name, badge) {
  const { title, detail } = describe(name);
  return [
    element("span", { class: "mini" }, picture(name)),
    element("span", { class: "name", title: name },
      element("span", { class: "title" }, title, " ", badge), element("span", { class: "detail" }, detail)),
  ];
}

function describeQuery(kind, masked) {
  if (!masked) return `These items would come next in this ${kind}.`;
  if (kind === "set") return "The masked card may be one of these, given the visible ones.";
  return `The ${masked > 1 ? "first " : ""}masked card may be one of these.`;
}
