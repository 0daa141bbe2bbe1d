// What each task of texts shows: a heading, the panel of a model, and the words about a result.
//
// `make(schema, model, fill)` gives a panel's elements and show(result, shown): `shown` holds the
// query, the hidden words, the models' results and the scale of a number. `describe(result, shown)`
// gives what stands beside the panels, and `explained(explanation, result)` what the feature
// importance is of.

import { element, percent } from "./elements.js";
import { makeRanking } from "./ranking.js";
import { markedText } from "./marks.js";

const ONE_LINE = (name, badge) => [element("span", { class: "name", title: name }, element("span", { class: "title" }, name, " ", badge))];
const LOG_ODDS = (prediction) => `Log-odds of ${prediction}`;

const maskedLanguage = {
  heading: "What is missing?",
  about: ({ tokens }) => `${tokens.toLocaleString("en")} tokens`,
  make(schema, model, fill) {
    const groups = element("div", { class: "groups" });
    const lists = [];
    const [following, showFollowing] = makeRanking(`Whether the second text follows, by ${model.title}`, ONE_LINE);
    function group(index) {
      const [list, show] = makeRanking(`Predictions of ${model.title} for mask ${index + 1}`, ONE_LINE, (token) => fill(index, token));
      const title = element("h4", {});
      return { made: element("div", {}, title, list), title, show };
    }
    function show({ masks, follows }, { hidden, results }) {
      while (lists.length < masks.length) lists.push(group(lists.length));
      groups.replaceChildren(...lists.slice(0, masks.length).map(({ made }) => made));
      masks.forEach((tokens, index) => {
        const words = [hidden[index], hidden[index]?.toLowerCase()]; // A vocabulary may keep capital letters.
        const both = results.flatMap((result) => result.masks[index].map(({ probability }) => probability));
        lists[index].title.textContent = masks.length > 1 ? `Mask ${index + 1}` : "";
        lists[index].show(tokens.map(({ token, probability }) => (
          { name: token, probability, badge: words.includes(token) ? "masked" : undefined })), Math.max(...both));
      });
      following.hidden = follows === null;
      showFollowing(follows === null ? [] : [
        { name: "follows", probability: follows }, { name: "does not follow", probability: 1 - follows }], 1);
    }
    return [[groups, following], show];
  },
  describe({ masks }) {
    const words = masks.length > 1 ? "These tokens may stand at the masks." : "One of these tokens may stand at the mask.";
    return {
      query: masks.length ? words : "Whether the second text follows the first.",
      said: `Most probable: ${(masks[0] ?? []).slice(0, 3).map(({ token }) => token).join(", ")}`,
    };
  },
  explained: ({ prediction }, { masks }) => LOG_ODDS(
    masks.length ? `“${prediction}”, the first prediction` : "that the second text follows"),
};

function labels(heading, query, count) {
  return {
    heading,
    about: ({ target }) => `${target.values.length.toLocaleString("en")} ${count}`,
    make(schema, model) {
      const [list, show] = makeRanking(`Labels by ${model.title}`, ONE_LINE);
      if (schema.task === "multi_label") list.classList.add("halves");
      return [[list], ({ labels: listed, above_half: above = [] }) => show(listed.map(({ label, probability }) => (
        { name: label, probability, badge: above.includes(label) ? "holds" : undefined })), 1)];
    },
    describe: ({ labels: listed }) => ({
      query,
      said: `Most probable: ${listed.slice(0, 3).map(({ label }) => label).join(", ")}`,
    }),
    explained: ({ prediction }) => LOG_ODDS(`“${prediction}”, the most probable label`),
  };
}

const regression = {
  heading: "How much is it?",
  about: () => "one number",
  make({ target }) {
    const figure = element("p", { class: "figure" });
    const dot = element("span", { class: "dot" });
    return [
      [
        figure,
        element("div", { class: "gauge", "aria-hidden": "true" }, dot),
        element("p", { class: "quiet" }, `The tick is the mean of the training data, ${short(target.mean, target.scale)}, and the ends are three standard deviations of ${short(target.scale, target.scale)} away from it.`),
      ],
      ({ number }) => {
        figure.textContent = short(number, target.scale);
        const place = 50 + (50 / 3) * ((number - target.mean) / target.scale);
        dot.style.left = `${Math.min(100, Math.max(0, place))}%`;
      },
    ];
  },
  describe: ({ number }, { scale }) => ({ query: "The number that belongs to the text.", said: short(number, scale) }),
  explained: () => "The number",
};

const tagging = {
  heading: "What are the words?",
  about: ({ target }) => `${target.values.length.toLocaleString("en")} tags`,
  make() {
    const line = element("p", { class: "marked", dir: "auto" });
    return [[line], (result, { text, results }) => {
      const differs = (index) => results.some(({ words }) => words[index].tag !== result.words[index].tag);
      const pieces = result.words.map((word, index) => ({
        ...word,
        class: word.tag === null ? "unread" : differs(index) ? "differs" : "",
        title: word.tag === null ? "was not read" : `${word.tag} ${percent(word.probability)}`,
      }));
      const spans = result.spans.map((span) => ({
        ...span,
        tag: span.type,
        note: percent(Math.min(...result.words.slice(span.first_word, span.last_word + 1).map(({ probability }) => probability ?? 1))),
      }));
      line.replaceChildren(...markedText(text, spans, pieces));
    }];
  },
  describe: ({ spans }, { results }) => ({
    query: `${results.some((one) => one.spans.length) ? "The percentage is the probability of the span's least certain word." : "No word is part of a span."}${results.length > 1 ? " Words that the models tag differently are underlined." : ""}`,
    said: spans.map(({ type, text }) => `${type}: ${text}`).join(", ") || "No span",
  }),
  explained: ({ prediction, word }, { words }) => LOG_ODDS(
    word === null ? `“${prediction}”` : `${prediction} at “${words[word].word}”`),
};

const span = {
  heading: "Where is it said?",
  about: () => "spans of the text",
  make(schema, model) {
    const line = element("p", { class: "marked", dir: "auto" });
    const [list, show] = makeRanking(`The answer by ${model.title}`, ONE_LINE);
    return [[line, list], ({ answer, spans, no_answer: none }, { text, text_b: passage = text }) => {
      line.replaceChildren(...markedText(passage, answer ? [{ ...answer, tag: "answer", note: "" }] : [], []));
      const words = new Map(); // What a passage says twice has one row, that of the likelier span.
      for (const one of spans) if (!words.has(one.text)) words.set(one.text, one.probability);
      const rows = [...words, ["no answer", none]].map(([name, probability]) => ({ name, probability }));
      show(rows.sort((one, other) => other.probability - one.probability), 1);
    }];
  },
  describe: ({ answer }) => ({
    query: "The most probable spans, and the probability that there is none.",
    said: answer ? answer.text : "No answer",
  }),
  explained: ({ prediction }) => LOG_ODDS(prediction === null ? "that there is no answer" : `“${prediction}”`),
};

// At least four digits, and enough to tell a hundredth of the scale; a float32 has at most nine.
function short(number, scale) {
  const digits = 3 + Math.ceil(Math.log10(Math.max(10, Math.abs(number) / scale)));
  return number.toLocaleString("en", { maximumSignificantDigits: Math.min(9, digits) });
}

export const TASKS = new Map(Object.entries({
  masked_language: maskedLanguage,
  classification: labels("What is it?", "The labels, the most probable first.", "labels"),
  multi_label: labels("What is in it?", "Several labels may hold; the mark stands at one half.", "labels"),
  regression, tagging, span,
}));
