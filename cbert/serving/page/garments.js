// Shows items: a name in two parts, and a drawn garment for the stylist data.

import { drawing } from "./elements.js";

// Maps, for an item may be called "constructor".
const COLOURS = new Map(Object.entries({
  black: "#2a2a30", white: "#f8f7f3", grey: "#9b9da4", navy: "#25345f", blue: "#4179c8",
  green: "#43895d", red: "#c24545", pink: "#e9a4bd", beige: "#d9c6a3", brown: "#7b5438",
}));
const DARK = new Set(["black", "navy", "brown", "green", "red", "blue"]);

// For each type: the outline, then the lines drawn upon it.
const SHAPES = new Map(Object.entries({
  "t-shirt": ["M23 11 10 18l5 12 5-3v27h24V27l5 3 5-12-13-7q-9 8-18 0Z", "M23 11q9 12 18 0"],
  shirt: [
    "M24 9 13 14 8 46l8 2 4-20v28h24V28l4 20 8-2-5-32-11-5-8 6Z",
    "M24 9l4 11 4-5 4 5 4-11M32 15v41M35 27h.1M35 36h.1M35 45h.1",
  ],
  blouse: [
    "M25 10q7 6 14 0l11 5q6 13 4 25l-9-2-2-9q0 13 5 27H16q5-14 5-27l-2 9-9 2q-2-12 4-25Z",
    "M25 10q7 9 14 0M32 15l-5 7M32 15l5 7M19 38l2-9M45 38l-2-9",
  ],
  sweater: [
    "M23 10 12 15 7 47l9 2 4-20v26h24V29l4 20 9-2-5-32-11-5q-9 6-18 0Z",
    "M23 10q9 11 18 0M20 50h24M8 42l9 2M56 42l-9 2",
  ],
  jacket: [
    "M23 9 12 14 8 45l8 2 4-19v25h24V28l4 19 8-2-4-31-11-5-9 4Z",
    "M23 9l4 16 5 4 5-4 4-16M32 29v24M23 43h5M36 43h5",
  ],
  coat: [
    "M24 6 14 11 9 43l8 1 3-16-3 32h30l-3-32 3 16 8-1-5-32-10-5-8 3Z",
    "M24 6l3 14 5 4 5-4 3-14M32 24v36M19 37h26M36 44h.1M36 51h.1",
  ],
  jeans: [
    "M20 6h24l5 52H37l-5-33-5 33H15Z",
    "M19 12h26M32 12v13M22 12q0 6-4 6M42 12q0 6 4 6M16 53h11M37 53h11",
  ],
  trousers: ["M21 6h22l4 52H36l-4-34-4 34H17Z", "M21 11h22M32 11v13M25 16l-3 40M39 16l3 40"],
  skirt: ["M23 13h18l11 37q-20 8-40 0Z", "M22 18h20M28 20l-6 32M32 20v34M36 20l6 32"],
  dress: [
    "M24 6l4 8q4 3 8 0l4-8 4 2-3 19 10 29q-19 7-38 0l10-29-3-19Z",
    "M23 27q9 4 18 0M29 33l-5 24M35 33l5 24",
  ],
  shorts: ["M19 14h26l6 32H35l-3-15-3 15H13Z", "M18 20h28M32 20v11M14 42h15M35 42h15"],
  sneakers: [
    "M8 46 10 26q5 5 11 0l4-4 13 13q17 2 19 9v7q0 2-2 2H9q-2 0-2-2Z",
    "M8 46h49M25 32l4-4M29 36l4-4M13 29q6 2 8-3",
  ],
  boots: ["M20 8h16v26q15 3 18 11v9q0 2-2 2H21q-2 0-2-2Z", "M19 51h35M20 14h16M20 34h8"],
  heels: [
    "M8 22q10 16 27 22 10-1 20 4 4 3 1 6H38q-15-4-22-16l-2 17h-4L9 36q-3-6-1-14Z",
    "M35 44q-6 2-9 4",
  ],
  bag: ["M15 27h34l5 28q0 2-2 2H12q-2 0-2-2Z", "M22 32V20q0-10 10-10t10 10v12M11 40h42M32 40v5"],
  hat: [
    "M5 42q1-4 13-5-1-20 14-20t14 20q12 1 13 5-27 11-54 0Z",
    "M18 33q14 6 28 0M18 37q14 6 28 0",
  ],
  scarf: [
    "M20 11q12 8 24 0 6 7 0 13l-5 4 5 29H34l-3-27q-7-2-11-6-6-6 0-13Z",
    "M18 17q13 10 28 0M31 30l8-2M34 52h9M38 57v-5",
  ],
  belt: ["M5 27h54v11H5Z", "M23 24h13v17H23ZM30 32h9M46 32h.1M50 32h.1M54 32h.1"],
}));

// The name in two parts, and the garment to draw: {title, detail, colour, type}.
export function describe(name) {
  const [title, ...rest] = name.split(", ");
  const [, colour, type] = /^(\S+) (\S+)$/.exec(title) ?? [];
  const drawn = COLOURS.has(colour) && SHAPES.has(type) && rest.length === 4;
  return { title, detail: rest.join(drawn ? " · " : ", "), ...(drawn ? { colour, type } : {}) };
}

// The garment as SVG; for any other item its first letter.
export function picture(name) {
  const { title, colour, type } = describe(name);
  const frame = drawing("svg", { viewBox: "0 0 64 64", "aria-hidden": "true" });
  if (type) {
    const [outline, lines] = SHAPES.get(type);
    frame.append(
      drawing("path", { d: outline, fill: COLOURS.get(colour), class: "outline" }),
      drawing("path", { d: lines, class: DARK.has(colour) ? "lines on-dark" : "lines" }),
    );
  } else {
    const letter = drawing("text", { x: 32, y: 42, "text-anchor": "middle", class: "letter" });
    letter.textContent = ([...title][0] ?? "").toUpperCase();
    frame.append(letter);
  }
  return frame;
}
