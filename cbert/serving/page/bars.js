// Bars of the context's features: how much each changes a prediction, and what the model reads.

import { element, label, percent } from "./elements.js";

// Bars to the right raise the prediction, bars to the left lower it. They are full at the
// largest difference, but at no less than `least`.
export function showImportance(list, features, least) {
  const rows = Object.entries(features).filter(([, difference]) => difference !== 0);
  rows.sort(([, one], [, other]) => Math.abs(other) - Math.abs(one));
  const scale = Math.max(least, ...rows.map(([, difference]) => Math.abs(difference)));
  const digits = Math.max(0, Math.round(2 - Math.log10(least)));
  list.replaceChildren(...rows.map(([name, difference]) => row(
    name,
    difference > 0 ? "raises" : "lowers",
    (50 * Math.abs(difference)) / scale,
    `${difference > 0 ? "+" : "−"}${Math.abs(difference).toFixed(digits)}`,
  )));
}

// Attention or gates, the largest first. Bars are full at the largest, but those of gates at no
// less than 1, where a gate is open. A feature that is missing gets no attention and no bar.
export function showReading(list, what, values) {
  const rows = Object.entries(values).filter(([, value]) => what === "gates" || value > 0);
  rows.sort(([, one], [, other]) => other - one);
  const scale = Math.max(what === "gates" ? 1 : 0, ...rows.map(([, value]) => value));
  list.replaceChildren(...rows.map(([name, value]) => row(
    name, "reads", (100 * value) / scale, what === "gates" ? value.toFixed(2) : percent(value),
  )));
}

function row(name, kind, width, number) {
  const bar = element("span", { class: `bar ${kind}` });
  bar.style.width = `${width}%`;
  return element(
    "li",
    {},
    element("span", { class: "title" }, label(name)),
    element("span", { class: "track", "aria-hidden": "true" }, bar),
    element("span", { class: "probability" }, number),
  );
}
