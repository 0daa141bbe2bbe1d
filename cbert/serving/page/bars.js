// How much each feature of the context changes a prediction, as bars.

import { element } from "./elements.js";

// Bars to the right raise the prediction, bars to the left lower it. They are full at the
// largest difference, but at no less than `least`.
export function showImportance(list, features, least) {
  const rows = Object.entries(features).filter(([, difference]) => difference !== 0);
  rows.sort(([, one], [, other]) => Math.abs(other) - Math.abs(one));
  const scale = Math.max(least, ...rows.map(([, difference]) => Math.abs(difference)));
  const digits = Math.max(0, Math.round(2 - Math.log10(least)));
  list.replaceChildren(...rows.map(([name, difference]) => {
    const bar = element("span", { class: difference > 0 ? "bar raises" : "bar lowers" });
    bar.style.width = `${(50 * Math.abs(difference)) / scale}%`;
    return element(
      "li",
      {},
      element("span", { class: "title" }, name.replaceAll("_", " ")),
      element("span", { class: "track", "aria-hidden": "true" }, bar),
      element("span", { class: "probability" }, `${difference > 0 ? "+" : "−"}${Math.abs(difference).toFixed(digits)}`),
    );
  }));
}
