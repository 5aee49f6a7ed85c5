// Columns of the list: what each shows, and the choice of them.
import { get } from "./api.js";
import { ago, compact, counted, duration, general, moment, result, setting, whole } from "./format.js";
import { meaning, title } from "./metrics.js";
import { atMost, pick } from "./picker.js";

const MOST_COLUMNS = 24, SAME = "Settings that are the same in all";

const TEXTS = { mean_return_100: result, evaluation_mean_return: result, best_mean_return_100: result, best_evaluation_return: result, env_steps: compact, env_steps_per_s: whole, training_s: duration, wall_s: duration, updates: compact, episodes: compact };
const MEANINGS = { training_s: "time of training", wall_s: "time from launch to end", exit_code: "0: it ended well", started: "time of the launch" };

export const textOf = (name) => TEXTS[name] ?? general;

/** Heading, text of a value, and what it means. */
export function described({ kind, name, short }) {
  if (kind === "setting") return { heading: short.replaceAll("_", " "), meaning: name };
  return { heading: title(name), text: textOf(name), meaning: MEANINGS[name] ?? meaning(name) };
}

export function cellOf(column, run) {
  if (column.kind === "setting") {
    const value = run.settings[column.name] ?? "", text = setting(value);
    return [text, text === value ? "" : `${column.name}: ${value}`];
  }
  if (column.name === "started") return [ago(run.started), moment(run.started)];
  const value = run.numbers[column.name];
  return [described(column).text(value), column.name === "env_steps" ? whole(value) : ""];
}

/** A dialog in which columns are chosen; resolves to names, none for the usual ones, or null if nothing changes. */
export async function pickColumns(query, shown) {
  const choices = await get("columns", { query });
  const item = (key, name, unit, meaning, group) => ({ key, name, unit, meaning, group, rare: group === SAME });
  const items = [
    ...choices.numbers.map((name) => { const { heading, meaning } = described({ name, kind: "number" }); return item(name, heading, "", meaning, "Numbers"); }),
    ...choices.differing.map(({ path, values }) => item(path, path, "", counted(values, "value"), "Settings that differ")), ...choices.same.map((path) => item(path, path, "", "", SAME)),
  ];
  const chosen = await pick({ title: "Columns", find: "Find columns", items, chosen: shown.map((column) => column.name), usual: true, check: atMost(MOST_COLUMNS, `A list has at most ${MOST_COLUMNS} columns.`) });
  return chosen && items.map(({ key }) => key).filter((key) => chosen.includes(key));
}
