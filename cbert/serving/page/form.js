// The context as a form made from the schema's features; each may also be missing.

import { element, label } from "./elements.js";

// Makes a control for each feature; changed(name, value) gets undefined for a missing one.
// Returns show(context), which sets every control from a Map.
export function makeForm(form, features, changed) {
  form.addEventListener("submit", (event) => event.preventDefault());
  const setters = features.map((feature) => {
    const [made, set] = CONTROLS.get(feature.control)(feature, (value) => changed(feature.name, value));
    form.append(made);
    return (context) => set(context.get(feature.name) ?? undefined);
  });
  return (context) => setters.forEach((set) => set(context));
}

const CONTROLS = new Map(Object.entries({
  select: categorical, checkboxes: multiValued, slider: numerical, note,
}));

function categorical({ name, values }, changed) {
  const id = `feature-${name}`;
  const select = element("select", { id, onchange: () => changed(select.value || undefined) });
  const set = (value) => {
    const unseen = value !== undefined && !values.includes(value);
    const known = unseen ? [...values, String(value)] : values;
    select.replaceChildren(
      element("option", { value: "" }, "not known"),
      ...known.map((one) => element("option", { value: one }, one)),
    );
    select.value = value ?? "";
  };
  return [element("div", { class: "feature" }, element("label", { for: id }, label(name)), select), set];
}

function multiValued({ name, values, max_values: most }, changed) {
  const chips = element("div", { class: "chips" });
  const unknown = notKnown(name, (isUnknown) => report(isUnknown ? undefined : []));
  function report(chosen) {
    set(chosen);
    changed(chosen);
  }
  function chip(value, chosen) {
    const box = element("input", {
      type: "checkbox", checked: chosen.includes(value),
      disabled: chosen.length >= most && !chosen.includes(value),
      onchange: () => {
        report([...chips.querySelectorAll("input:checked")].map((checked) => checked.value));
        [...chips.querySelectorAll("input")].find((other) => other.value === value)?.focus();
      },
    });
    box.value = value;
    return element("label", { class: "chip" }, box, element("span", {}, value));
  }
  function set(value) {
    const chosen = Array.isArray(value) ? value.map(String) : [];
    const unseen = chosen.filter((one) => !values.includes(one));
    unknown.checked = value === undefined;
    chips.replaceChildren(...[...values, ...unseen].map((one) => chip(one, chosen)));
  }
  return [
    element(
      "fieldset",
      { class: "feature" },
      element("legend", {}, label(name), element("span", { class: "quiet" }, ` at most ${most}`)),
      unknown.parentElement, chips,
    ),
    set,
  ];
}

function numerical({ name, low, high, step, middle }, changed) {
  const id = `feature-${name}`;
  const slider = element("input", {
    type: "range", min: String(low), max: String(high), step: String(step),
    "aria-label": label(name), oninput: () => report(Number(slider.value)),
  });
  const number = element("input", {
    type: "number", id, step: "any",
    oninput: () => report(number.value === "" ? undefined : Number(number.value)),
  });
  const unknown = notKnown(name, (isUnknown) => report(isUnknown ? undefined : Number(slider.value)));
  const made = element(
    "div",
    { class: "feature" },
    element("label", { for: id }, label(name)),
    element("div", { class: "number" }, slider, number),
    unknown.parentElement,
  );
  function report(value) {
    set(value, document.activeElement === number);
    changed(value);
  }
  function set(value, typing = false) {
    made.classList.toggle("not-known", value === undefined);
    unknown.checked = value === undefined;
    slider.value = typeof value === "number" ? value : middle;
    if (!typing) number.value = typeof value === "number" ? value : "";
  }
  return [made, set];
}

function note({ name, note: text }) {
  return [
    element(
      "div",
      { class: "feature not-known" },
      element("span", { class: "label" }, label(name)),
      element("span", { class: "quiet" }, `not known (${text})`),
    ),
    () => {},
  ];
}

function notKnown(name, changed) {
  const box = element("input", {
    type: "checkbox", "aria-label": `${label(name)} is not known`, onchange: () => changed(box.checked),
  });
  element("label", { class: "unknown" }, box, element("span", {}, "not known"));
  return box;
}
