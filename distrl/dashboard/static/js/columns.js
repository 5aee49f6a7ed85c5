// Columns of the list: what each shows, and the choice of them.
import { get } from "./api.js";
import { ago, compact, duration, general, moment, result, title, whole } from "./format.js";
import { atMost, pick } from "./picker.js";

const MOST_COLUMNS = 24, SAME = "Settings that are the same in all";

const NUMBERS = {
  mean_return_100: ["Return", result, "Mean return of the last 100 training episodes"],
  evaluation_mean_return: ["Evaluation", result, "Mean return of the newest evaluation"],
  best_mean_return_100: ["Best", result, "Best mean return of 100 training episodes"],
  best_evaluation_return: ["Best evaluation", result, "Best mean return of an evaluation"],
  env_steps: ["Steps", compact, "Environment steps"],
  env_steps_per_s: ["Steps/s", whole, "Environment steps per second"],
  training_s: ["Training", duration, "Time of training"],
  wall_s: ["Wall time", duration, "Time from launch to end"],
  updates: ["Updates", compact, "Updates"], episodes: ["Episodes", compact, "Episodes"],
};

/** Heading, text of a value, and what it means. */
export function described(column) {
  if (column.kind === "setting") return { heading: column.name.split(".").pop().replaceAll("_", " "), meaning: column.name };
  const [heading, text, meaning] = NUMBERS[column.name] ?? [title(column.name), general, title(column.name)];
  return { heading, text, meaning };
}

export function cellOf(column, run) {
  if (column.kind === "setting") return [run.settings[column.name] ?? "", ""];
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
    ...choices.differing.map(({ path, values }) => item(path, path, "", `${values} values`, "Settings that differ")), ...choices.same.map((path) => item(path, path, "", "", SAME)),
  ];
  const chosen = await pick({ title: "Columns", find: "Find columns", items, chosen: shown.map((column) => column.name), usual: true, check: atMost(MOST_COLUMNS, `A list has at most ${MOST_COLUMNS} columns.`) });
  return chosen && items.map(({ key }) => key).filter((key) => chosen.includes(key));
}
