// States of runs and how they ended, in words.
import { h } from "./dom.js";

const REASONS = {
  mean_return: "solved", evaluation_return: "solved", metrics: "solved", env_steps: "budget of steps spent",
  episodes: "budget of episodes spent", updates: "budget of updates spent", minutes: "time is up", asked: "stopped as asked",
};

/** The most telling word for a run's state, which the server chooses. */
export const stateOf = (run) => run.words[0];

/** A role's own state is as old as its heartbeat. */
export const stateWords = (role) => (role.silent ? `silent (was ${role.state})` : role.state);

export const pill = (run) => h("span", { class: `pill ${stateOf(run)}` }, stateOf(run));

export function outcome(run) {
  if (run.problem) return run.problem;
  if (run.state === "gone") return "its process is gone; it can be resumed";
  if (run.numbers.error) return run.numbers.error;
  const reason = run.numbers.stop_reason;
  return reason ? REASONS[reason] ?? reason : "";
}
