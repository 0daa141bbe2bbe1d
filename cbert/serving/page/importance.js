// How much each feature of the context changes a prediction, as bars.

import { element } from "./elements.js";

// Bars to the right raise the probability of the prediction, bars to the left lower it.
export function showImportance(list, features) {
  const rows = Object.entries(features).filter(([, difference]) => difference !== 0);
  rows.sort(([, one], [, other]) => Math.abs(other) - Math.abs(one));
  const scale = Math.max(0.5, ...rows.map(([, difference]) => Math.abs(difference)));
  list.replaceChildren(...rows.map(([name, difference]) => {
    const bar = element("span", { class: difference > 0 ? "bar raises" : "bar lowers" });
    bar.style.width = `${(50 * Math.abs(difference)) / scale}%`;
    return element(
      "li",
      {},
      element("span", { class: "title" }, name.replaceAll("_", " ")),
      element("span", { class: "track", "aria-hidden": "true" }, bar),
      element("span", { class: "probability" }, `${difference > 0 ? "+" : "−"}${Math.abs(difference).toFixed(2)}`),
    );
  }));
}
