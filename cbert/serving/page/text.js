// Texts: what is written and masked, and what the task predicts of it.

import { find } from "./elements.js";
import { makePanel } from "./ranking.js";
import { TASKS } from "./tasks.js";
import { fillMask, longestWord, makeWordKeys, maskedText, maskRanges, moveMasks, showWords } from "./words.js";

const LISTED = 8;
const LISTED_EACH = 4; // Of each of several masks.

// See page.js for what a view is.
export function makeText(schema, changed) {
  const task = TASKS.get(schema.task);
  const masking = schema.task === "masked_language";
  const single = schema.task === "tagging" || schema.target?.pairs === "none";
  const paired = masking || !single; // Whether there may be a second text.
  const [first, second] = [find("text"), find("text-b")];
  let text = "";
  let masks = []; // Ranges of the text.
  let newest; // The first model's result.
  const shows = schema.models.map((model) => {
    const [content, show] = task.make(schema, model, fill);
    makePanel(find("panels"), model, ...content);
    return show;
  });
  find("masking").hidden = !masking;
  find("pair").hidden = !paired;
  find("texts").addEventListener("submit", (event) => event.preventDefault());
  // Of elements in a template Chromium does not find out the direction.
  for (const box of [first, second, find("words")]) box.dir = "auto";
  makeWordKeys(find("words"));

  function draw() {
    if (first.value !== text) first.value = text;
    if (masking) showWords(find("words"), text, masks, toggle);
  }
  function change() {
    draw();
    changed();
  }
  function toggle(range) {
    const others = masks.filter(([from]) => from !== range[0]);
    masks = others.length < masks.length ? others : [...masks, range].sort(([one], [other]) => one - other);
    change();
  }
  // Writes a predicted token in place of a mask; those of the second text come last.
  function fill(index, token) {
    const own = maskRanges(text, masks).length;
    if (index < own) [text, masks] = fillMask(text, masks, index, token);
    else [second.value] = fillMask(second.value, [], index - own, token);
    change();
    // The button that was clicked is gone with its mask.
    (index < own ? find("words").querySelector("[tabindex='0']") : second).focus();
  }
  first.addEventListener("input", () => {
    masks = moveMasks(masks, text, first.value);
    text = first.value;
    change();
  });
  second.addEventListener("input", changed);

  const query = () => ({ text: maskedText(text, masks), ...(second.value.trim() ? { text_b: second.value } : {}) });
  return {
    heading: task.heading,
    title: "The text",
    about: task.about(schema),
    least: schema.task === "regression" ? schema.target.scale / 2 : 0.5, // Nats, but for a number.
    example() {
      const { text: own, text_b: other } = schema.example;
      // A word may be several tokens, and one that is cut off cannot be masked.
      const longest = masking && longestWord(own, schema.max_length / 4);
      return { text: own, text_b: other, masks: longest ? [longest] : [] };
    },
    link: () => ({ text, ...(second.value ? { text_b: second.value } : {}), ...(masking ? { masks } : {}) }),
    show({ text: own, text_b: other = "", masks: given = [] }) {
      if (typeof own !== "string" || typeof other !== "string" || !areRanges(given, own.length)) throw new Error();
      // A link may have been made on the page of another task.
      [text, masks, second.value] = [own, masking ? given : [], paired ? other : ""];
      find("pair").open = Boolean(second.value);
      draw();
    },
    request() {
      if (!text.trim()) return { missing: "Write a text." };
      const body = query();
      const masked = maskRanges(text, masks).length + maskRanges(body.text_b ?? "", []).length;
      const follows = schema.next_sentence && body.text_b;
      if (masking && !masked && !follows) return { missing: "Click a word to mask it." };
      return { path: "predict", body, k: masked > 1 ? LISTED_EACH : LISTED };
    },
    showResults(results) {
      const hidden = maskRanges(text, masks).map(([from, to]) => text.slice(from, to));
      const shown = { ...query(), hidden, results, scale: schema.target?.scale };
      shows.forEach((show, index) => show(results[index], shown));
      newest = results[0];
      const notes = newest.cut
        ? [`The text is longer than ${schema.max_length} tokens; what stands after them was not read.`] : [];
      return { notes, explain: {}, ...task.describe(newest, shown) };
    },
    explained: (explanation) => task.explained(explanation, newest),
  };
}

// Whether these are ranges of a text of this length, one after the other.
function areRanges(ranges, length) {
  const bounds = ranges.flat();
  return ranges.every((range) => range.length === 2 && range[0] < range[1])
    && bounds.every((bound, index) => Number.isInteger(bound) && bound >= (bounds[index - 1] ?? 0) && bound <= length);
}
