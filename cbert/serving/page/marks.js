// A text in which spans are marked and coloured by their tags.

import { element, label } from "./elements.js";

const HUES = 8;

// spans: [{start, end, tag, note}] and pieces: [{start, end, class, title}], both in order and
// counted in characters as Python counts them; the pieces are words within or between spans.
export function markedText(text, spans, pieces) {
  const characters = [...text];
  function between(start, end) {
    const made = [];
    for (const piece of pieces.filter((one) => one.start >= start && one.end <= end)) {
      made.push(characters.slice(start, piece.start).join(""));
      made.push(element("span", { class: piece.class, title: piece.title }, characters.slice(piece.start, piece.end).join("")));
      start = piece.end;
    }
    return [...made, characters.slice(start, end).join("")];
  }
  const made = [];
  let start = 0;
  for (const span of spans) {
    made.push(...between(start, span.start), element(
      "mark", { class: `hue-${hue(span.tag)}` },
      ...between(span.start, span.end), " ",
      element("span", { class: "tag" }, `${label(span.tag)} ${span.note}`),
    ));
    start = span.end;
  }
  return [...made, ...between(start, characters.length)];
}

// A tag has the same colour wherever it stands.
function hue(tag) {
  let hash = 7;
  for (const character of tag) hash = (hash * 31 + character.codePointAt(0)) % 9973;
  return hash % HUES;
}
