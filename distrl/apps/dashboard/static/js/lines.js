// The lines of a run as the server returns them; of those that are here, only later points are asked for.
import { get } from "./api.js";

const MOST_GROWTH = 2; // times as many points as were asked for: then the whole is fetched again, thinned

const joinedLine = (one, other) => ({ x: [...one.x, ...other.x], y: [...one.y, ...other.y] });
const joinedLines = (old, more) => Object.fromEntries(Object.entries(more).map(([name, line]) => [name, joinedLine(old[name], line)]));

/** An answer with the points of an earlier one before its own. */
export function continued(old, more) {
  const ruler = Object.fromEntries(Object.entries(old.ruler).map(([axis, values]) => [axis, [...values, ...(more.ruler[axis] ?? [])]]));
  return { ...more, curves: joinedLines(old.curves, more.curves), ...(more.raw && { raw: joinedLines(old.raw, more.raw) }), ruler };
}

export class Lines {
  constructor(id) {
    this.id = id;
    this.kept = new Map(); // what was asked for -> the answer
  }

  /** The answers to these requests, which are all that is kept for the next ones. */
  async fetch(requests, signal, timeout) {
    const answers = await Promise.all(requests.map((request) => this.answer(request, signal, timeout)));
    this.kept = new Map(requests.map((request, at) => [JSON.stringify(request), answers[at]]));
    return answers;
  }

  async answer(request, signal, timeout) {
    const old = this.kept.get(JSON.stringify(request));
    const grows = old?.mark && request.from === undefined && Object.values(old.curves).every(({ x }) => x.length < MOST_GROWTH * request.points);
    const told = await get(`runs/${this.id}/curve`, { ...request, since: grows ? old.mark : null }, signal, timeout);
    return told.more ? continued(old, told) : told;
  }
}
