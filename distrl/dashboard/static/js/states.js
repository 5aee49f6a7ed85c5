// States of runs and how they ended, in words.
import { h } from "./dom.js";

const REASONS = {
  mean_return: "solved", evaluation_return: "solved", env_steps: "budget of steps spent",
  episodes: "budget of episodes spent", updates: "budget of updates spent", minutes: "time is up", asked: "stopped as asked",
};

export function stateOf(run) {
  if (run.state === "running") return run.paused ? "paused" : "running";
  if (run.state === "ended") return run.numbers.exit_code ? "failed" : run.numbers.stop_reason === "asked" ? "stopped" : "ended";
  return run.state;
}

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
