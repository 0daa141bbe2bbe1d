// The panels of the models, and ranked predictions in them.

import { element, percent } from "./elements.js";

// Makes a model's panel, with its title and what is shown of the model.
export function makePanel(panels, model, ...content) {
  panels.append(element(
    "div",
    { class: "panel", "data-model": model.model },
    element("h3", {}, model.title, element("span", { class: "quiet" }, ` step ${model.step.toLocaleString("en")}`)),
    ...content,
  ));
}

// Makes a list; face(name) gives the elements that show a name, and choose(name) its button.
// Returns the list and show(predictions, scale): [{name, probability, badge}], the bars being
// full at `scale`.
export function makeRanking(title, face, choose) {
  const list = element("ol", { class: "predictions", "aria-label": title });
  const rows = new Map();
  function show(predictions, scale) {
    const before = new Map([...rows].map(([name, row]) => [name, row.item.offsetTop]));
    const names = new Set(predictions.map(({ name }) => name));
    const focused = [...list.children].findIndex((row) => row.contains(document.activeElement));
    for (const name of [...rows.keys()].filter((old) => !names.has(old))) {
      rows.get(name).item.remove();
      rows.delete(name);
    }
    predictions.forEach(({ name, probability, badge }, index) => {
      if (!rows.has(name)) rows.set(name, makeRow(name, face, choose));
      const row = rows.get(name);
      row.rank.textContent = index + 1;
      row.number.textContent = percent(probability);
      row.badge.hidden = !badge;
      row.badge.textContent = badge ?? "";
      if (list.children[index] !== row.item) list.insertBefore(row.item, list.children[index] ?? null);
      requestAnimationFrame(() => { row.bar.style.width = `${Math.min(100, (100 * probability) / scale)}%`; });
    });
    // A row that was chosen is gone, and one that is moved loses the focus.
    if (focused >= 0) list.children[Math.min(focused, predictions.length - 1)]?.querySelector("button").focus();
    for (const [name, { item }] of rows) slide(item, before.get(name));
  }
  return [list, show];
}

function slide(item, before) {
  const moved = before === undefined ? 0 : before - item.offsetTop;
  if (!moved || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  item.animate([{ transform: `translateY(${moved}px)` }, { transform: "none" }], { duration: 250, easing: "ease-out" });
}

function makeRow(name, face, choose) {
  const rank = element("span", { class: "rank" });
  const number = element("span", { class: "probability" });
  const bar = element("span", { class: "bar" });
  const badge = element("span", { class: "badge", hidden: true });
  const plus = choose && element(
    "button", { type: "button", class: "plus", "aria-label": `Add ${name}`, onclick: () => choose(name) }, "+",
  );
  const item = element(
    "li",
    { class: "prediction" },
    rank,
    ...face(name, badge),
    number,
    ...(plus ? [plus] : []),
    element("span", { class: "track", "aria-hidden": "true" }, bar),
  );
  return { item, rank, number, bar, badge };
}
