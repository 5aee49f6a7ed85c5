// Elements made from data: text is always text, never markup.

/** h("td", {class: "n", title: "…", on: {click: f}}, "text", element, null) */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Its name has the form of an address, of which this page has none.
const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

/** svg("line", {x1: 0, x2: 18}, child) */
export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Changes the text of an element only where it is another: screen readers and selections stay where they are. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let hideAgain = 0;

/** Announces a text to screen readers. */
export function announce(text) {
  const status = document.getElementById("status");
  status.textContent = text;
  clearTimeout(hideAgain);
  hideAgain = setTimeout(() => (status.textContent = ""), 5000);
}

const NAMES = { and: "Second curve", over: "Axis", as: "Statistic" };

/** A choice: options are [value, text]. Labels that only make sense in their row have a longer name beside it. */
export function select(label, options, value, onChange) {
  const element = h("select", { "aria-label": NAMES[label] ?? label, on: { change: () => onChange(element.value) } },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  return h("label", { class: "field" }, label, element);
}

export function slider(label, low, high, value, onChange) {
  const shown = h("output", {}, String(value));
  const input = h("input", { type: "range", min: low, max: high, step: 2, value, on: {
    input: () => { shown.textContent = input.value; onChange(Number(input.value)); },
  } });
  return h("label", { class: "field" }, label, input, shown);
}

const waiting = new Set();

/** Calls `action` after `ms` without another call, unless the page has been left meanwhile. */
export function settled(ms, action) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    waiting.delete(timer);
    timer = setTimeout(() => { waiting.delete(timer); action(); }, ms);
    waiting.add(timer);
  };
}

/** Lets nothing happen any more that `settled` holds: the page is left. */
export function forgetSettled() {
  waiting.forEach((timer) => clearTimeout(timer));
  waiting.clear();
}
