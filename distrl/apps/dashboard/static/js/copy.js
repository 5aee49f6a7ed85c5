// Texts to copy. A page over http from another host has no clipboard: there the text is selected instead.
import { announce, h, say } from "./dom.js";

const SHOWN_MS = 1600;

async function copied(text, source) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    return "Press Ctrl-C";
  }
}

/** A small button that copies `text()`; `source` is the element that is selected where there is no clipboard. */
export function copyButton(label, text, source, face = "Copy") {
  let back = 0;
  const button = h("button", { type: "button", class: "small copy", "aria-label": label, title: label, on: { click: async () => {
    const told = await copied(text(), source());
    say(button, told);
    announce(told === "Copied" ? `${told}: ${text()}` : told);
    clearTimeout(back);
    back = setTimeout(() => say(button, face), SHOWN_MS);
  } } }, face);
  return button;
}

/** A command line with a button that copies it. */
export function command(text, label = "Copy the command") {
  const code = h("code", { tabindex: 0, role: "textbox", "aria-readonly": "true", "aria-label": "Command" }, text);
  return h("span", { class: "command" }, code, copyButton(label, () => text, () => code));
}
