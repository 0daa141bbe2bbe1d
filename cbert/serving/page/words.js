// The words of a text, of which some are masked; ranges are [start, end) in its characters.

import { element } from "./elements.js";

// What is invisible alone, such as a joiner within a word or an emoji, is no word of its own.
const WORD = /\[MASK\]|\p{RGI_Emoji}|[\p{L}\p{N}][\p{L}\p{M}\p{N}\p{Cf}]*|[^\s\p{L}\p{M}\p{N}\p{Cf}]/gv;
const MASK = "[MASK]";
const MOST = 400; // The page would become slow with a button for each word of a book.

// Where the masks stand after an edit; those that the edit touches are gone.
export function moveMasks(masks, before, after) {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const shift = after.length - before.length;
  return masks.flatMap(([from, to]) => {
    if (to <= start) return [[from, to]];
    return from >= before.length - end ? [[from + shift, to + shift]] : [];
  });
}

// The text with [MASK] for each masked word.
export function maskedText(text, masks) {
  let start = 0;
  const parts = masks.flatMap(([from, to]) => {
    const part = [text.slice(start, from), MASK];
    start = to;
    return part;
  });
  return [...parts, text.slice(start)].join("");
}

// All that is masked, in the order of the text: the masked words and each [MASK] written in it.
export function maskRanges(text, masks) {
  const written = [...text.matchAll(WORD)].filter(([word]) => word === MASK).map(({ index }) => [index, index + MASK.length]);
  return [...written, ...masks].sort(([one], [other]) => one - other);
}

// The text and its masks with a token in place of one of `maskRanges`.
export function fillMask(text, masks, index, token) {
  const [from, to] = maskRanges(text, masks)[index];
  const start = token.startsWith("##") ? text.slice(0, from).trimEnd().length : from;
  const filled = text.slice(0, start) + token.replace(/^##/, "") + text.slice(to);
  return [filled, moveMasks(masks.filter(([one]) => one !== from), text, filled)];
}

// The range of the longest of the first words, which an example hides.
export function longestWord(text, count) {
  const words = [...text.matchAll(WORD)].slice(0, count).sort(([one], [other]) => other.length - one.length);
  return words.length ? [words[0].index, words[0].index + words[0][0].length] : null;
}

// Draws the text with a button for each word; toggle(range) is called by a click. Only one of
// the buttons is reached by Tab, and the arrow keys go on from it.
export function showWords(line, text, masks, toggle) {
  const focused = [...line.querySelectorAll("button")].indexOf(document.activeElement);
  const hidden = maskRanges(text, masks);
  const visible = [...text.matchAll(WORD)].slice(0, MOST).map(({ 0: word, index }) => [index, index + word.length])
    .filter(([from, to]) => hidden.every((range) => to <= range[0] || from >= range[1]));
  const ranges = [...hidden, ...visible].sort(([one], [other]) => one - other).slice(0, MOST);
  let start = 0;
  const parts = ranges.flatMap((range) => {
    const gap = text.slice(start, range[0]);
    start = range[1];
    const mark = hidden.length > 1 ? hidden.indexOf(range) + 1 : "?";
    return [gap, wordButton(text.slice(...range), hidden.includes(range) && mark, () => toggle(range))];
  });
  const rest = text.slice(start);
  line.replaceChildren(...parts, rest.length > 200 ? `${rest.slice(0, 200)}…` : rest);
  const buttons = [...line.querySelectorAll("button")];
  buttons.forEach((button, index) => { button.tabIndex = index === Math.max(0, focused) ? 0 : -1; });
  if (focused >= 0) buttons[Math.min(focused, buttons.length - 1)]?.focus();
}

// `mark` stands in place of a masked word; of a visible one it is false.
function wordButton(word, mark, toggle) {
  if (word === MASK) return element("span", { class: "word masked", title: "written in the text" }, mark);
  return element(
    "button",
    { type: "button", class: mark ? "word masked" : "word", "aria-pressed": String(Boolean(mark)), title: mark ? word : "", onclick: toggle },
    mark || word,
    ...(mark ? [element("span", { class: "visually-hidden" }, ` ${word}, masked`)] : []),
  );
}

// The arrow keys go from word to word.
export function makeWordKeys(line) {
  line.addEventListener("keydown", (event) => {
    const right = getComputedStyle(line).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: right, ArrowLeft: -right }[event.key];
    if (!step) return;
    event.preventDefault();
    const buttons = [...line.querySelectorAll("button")];
    const next = buttons[buttons.indexOf(document.activeElement) + step];
    if (!next) return;
    for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  });
}
