// The set as cards, and the search that adds to it.

import { debounce, element, find } from "./elements.js";
import { describe, picture } from "./garments.js";
import { get } from "./server.js";

const MATCHES = 8;
const MAX_MATCHES = 100; // The server lists no more at once.

// items: [{name, masked}]. changed() is called after each change.
export function showCards(list, items, changed) {
  const cards = items.map((item) => card(item, {
    toggle() {
      item.masked = !item.masked;
      changed();
    },
    remove() {
      const index = items.indexOf(item);
      items.splice(index, 1);
      changed();
      const next = list.children[Math.min(index, items.length - 1)];
      (next?.querySelector("button") ?? find("search")).focus();
    },
  }));
  const focused = [...list.children].findIndex((old) => old.contains(document.activeElement));
  list.replaceChildren(...cards);
  if (focused >= 0) list.children[focused]?.querySelector("button").focus();
}

function card(item, { toggle, remove }) {
  const { title, detail } = describe(item.name);
  const face = element(
    "button",
    { type: "button", class: "face", "aria-pressed": String(item.masked), title: item.name, onclick: toggle },
    element("span", { class: "art" }, picture(item.name), element("span", { class: "mask", "aria-hidden": "true" }, "?")),
    element("span", { class: "title" }, title),
    element("span", { class: "detail" }, detail),
    element("span", { class: "visually-hidden" }, item.masked ? ", masked" : ", visible"),
  );
  const cross = element(
    "button",
    { type: "button", class: "remove", "aria-label": `Remove ${item.name}`, onclick: remove },
    "×",
  );
  return element("li", { class: item.masked ? "card masked" : "card" }, face, cross);
}

// Calls add(name) with the item chosen; taken() gives the names not to offer.
export function makeSearch(form, { add, taken }) {
  const input = form.querySelector("input");
  const list = form.querySelector("ul");
  let newest = 0;

  function close() {
    newest += 1;
    list.hidden = true;
    list.replaceChildren();
  }
  function choose(name) {
    input.value = "";
    close();
    add(name);
    input.focus();
  }
  const search = () => searchSoon(++newest);
  const searchSoon = debounce(150, async (own) => {
    if (own !== newest) return; // The list has been closed.
    try {
      const { items } = await get(`items?limit=${Math.min(MAX_MATCHES, MATCHES + taken().length)}&query=${encodeURIComponent(input.value)}`);
      if (own !== newest) return;
      const offered = items.map(({ name }) => name).filter((name) => !taken().includes(name));
      list.replaceChildren(...offered.slice(0, MATCHES).map((name) => match(name, choose)));
      if (!offered.length) list.append(element("li", { class: "quiet" }, "No item has this in its name."));
    } catch (error) {
      if (own !== newest) return;
      const message = element("span", { role: "alert" }, error.message);
      list.replaceChildren(element("li", { class: "quiet" }, message));
    }
    list.hidden = false;
  });
  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    list.querySelector("button")?.click();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault(); // The browser would empty the field, for which all items are listed.
      input.focus();
      close();
    }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const stops = [input, ...list.querySelectorAll("button")];
      const step = event.key === "ArrowDown" ? 1 : -1;
      stops[stops.indexOf(document.activeElement) + step]?.focus();
    }
  });
  form.addEventListener("focusout", (event) => {
    if (!form.contains(event.relatedTarget)) close();
  });
}

function match(name, choose) {
  const { title, detail } = describe(name);
  return element("li", {}, element(
    "button",
    { type: "button", onclick: () => choose(name) },
    element("span", { class: "mini" }, picture(name)),
    element("span", {}, element("span", { class: "title" }, title), element("span", { class: "detail" }, detail)),
  ));
}
