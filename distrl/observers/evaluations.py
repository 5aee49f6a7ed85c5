"""evaluations.jsonl, written while a run trains; `runs/evaluations.py` states its lines and reads them back."""

from dataclasses import asdict

from distrl.memory_backend.records import Evaluation
from distrl.observers.observer import ObservedRun, Observer
from distrl.runs.evaluations import EVALUATIONS, write_evaluation


class EvaluationsFile(Observer):
    """Appends every evaluation."""

    writes = EVALUATIONS

    def __init__(self, run: ObservedRun) -> None:
        self._path = run.run_dir / EVALUATIONS

    def evaluation(self, evaluation: Evaluation) -> None:
        write_evaluation(self._path, asdict(evaluation))
