// The ranked predictions of one model, and how each feature changes the first of them.

import { element, percent } from "./elements.js";
import { describe, picture } from "./garments.js";

// Makes a model's panel. Returns show(predictions, scale, masked): bars are full at `scale`.
export function makePanel(panels, model, choose) {
  const list = element("ol", { class: "predictions", "aria-label": `Predictions of ${model.title}` });
  panels.append(element(
    "div",
    { class: "panel", "data-model": model.model },
    element("h3", {}, model.title, element("span", { class: "quiet" }, ` step ${model.step.toLocaleString("en")}`)),
    list,
  ));
  const rows = new Map();
  return (predictions, scale, masked) => {
    const before = new Map([...rows].map(([name, row]) => [name, row.item.offsetTop]));
    for (const name of [...rows.keys()]) {
      if (!predictions.some(({ item }) => item === name)) {
        rows.get(name).item.remove();
        rows.delete(name);
      }
    }
    for (const { item, probability, rank } of predictions) {
      if (!rows.has(item)) rows.set(item, makeRow(item, choose));
      const row = rows.get(item);
      row.rank.textContent = rank;
      row.number.textContent = percent(probability);
      row.badge.hidden = !masked.includes(item);
      if (list.children[rank - 1] !== row.item) list.insertBefore(row.item, list.children[rank - 1] ?? null);
      requestAnimationFrame(() => { row.bar.style.width = `${Math.min(100, (100 * probability) / scale)}%`; });
    }
    for (const [name, { item }] of rows) slide(item, before.get(name));
  };
}

function slide(item, before) {
  const moved = before === undefined ? 0 : before - item.offsetTop;
  if (!moved || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  item.animate([{ transform: `translateY(${moved}px)` }, { transform: "none" }], { duration: 250, easing: "ease-out" });
}

function makeRow(name, choose) {
  const { title, detail } = describe(name);
  const rank = element("span", { class: "rank" });
  const number = element("span", { class: "probability" });
  const bar = element("span", { class: "bar" });
  const badge = element("span", { class: "badge", hidden: true }, "masked");
  const item = element(
    "li",
    { class: "prediction" },
    rank,
    element("span", { class: "mini" }, picture(name)),
    element("span", { class: "name", title: name },
      element("span", { class: "title" }, title, " ", badge), element("span", { class: "detail" }, detail)),
    number,
    element("button", { type: "button", class: "plus", "aria-label": `Add ${name}`, onclick: () => choose(name) }, "+"),
    element("span", { class: "track", "aria-hidden": "true" }, bar),
  );
  return { item, rank, number, bar, badge };
}

// Bars to the right raise the probability of the item, bars to the left lower it.
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
