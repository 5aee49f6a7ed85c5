// Words of a search, marked in a text.
import { h } from "./dom.js";

export const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

export const hasAll = (text, words) => { const low = text.toLowerCase(); return words.every((word) => low.includes(word)); };

/** The text as nodes, with every occurrence of a word in <mark>. */
export function marked(text, words) {
  if (!words.length) return [text];
  const low = text.toLowerCase(), nodes = [];
  if (low.length !== text.length) return [text]; // a letter whose small form is longer: places would differ
  let at = 0;
  while (at < text.length) {
    const next = words.map((word) => [low.indexOf(word, at), word.length]).filter(([place]) => place >= 0)
      .sort(([one, long], [other, longer]) => one - other || longer - long)[0];
    if (!next) break;
    const [place, length] = next;
    if (place > at) nodes.push(text.slice(at, place));
    nodes.push(h("mark", {}, text.slice(place, place + length)));
    at = place + length;
  }
  return [...nodes, text.slice(at)];
}
