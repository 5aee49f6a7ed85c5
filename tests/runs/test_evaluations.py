from dataclasses import asdict

from distrl.memory_backend.records import Evaluation
from distrl.runs import evaluations
from distrl.runs.evaluations import RecordedEvaluation, best, read_evaluations, write_evaluation

FIRST = Evaluation(3, 1000, 20, 67.1, 16.1, 20.0, 99.0, 67.1, 0.5)
SECOND = Evaluation(9, 2000, 20, 1.0, 0.5, 0.0, 2.0, 8.0, 0.25, 0.75, {"speed": None}, {"hard": FIRST})


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "evaluations.jsonl"
    for one in (FIRST, SECOND):
        write_evaluation(path, asdict(one))
    assert [found.model_dump() for found in read_evaluations(path)] == [asdict(FIRST), asdict(SECOND)]


def test_torn_and_foreign_lines_are_left_out(tmp_path):
    path = tmp_path / "evaluations.jsonl"
    path.write_bytes(b'{"env_steps": 1}\n\xff\n[]\n')
    write_evaluation(path, asdict(FIRST))
    with path.open("a") as file:
        file.write('{"weights_version": 1, "env_st')
    assert [found.env_steps for found in read_evaluations(path)] == [1000]


def test_of_a_long_file_the_end(tmp_path, monkeypatch):
    path = tmp_path / "evaluations.jsonl"
    for env_steps in range(1, 9):
        write_evaluation(path, asdict(Evaluation(1, env_steps, 1, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0)))
    half = path.stat().st_size // 2
    for most, whole in ((half, [5, 6, 7, 8]), (half - 1, [6, 7, 8])):
        monkeypatch.setattr(evaluations, "MOST_BYTES", most)
        assert [found.env_steps for found in read_evaluations(path)] == whole


def test_the_best_is_by_the_result_that_the_newest_names():
    def one(env_steps, mean_return, success_rate, best_by="success"):
        numbers = (1, env_steps, 5, mean_return, 0.0, 0.0, 0.0, 1.0, 1.0, success_rate)
        return RecordedEvaluation.model_validate(asdict(Evaluation(*numbers, best_by=best_by)))

    found = [one(1, 9.0, 0.5), one(2, 1.0, 0.75), one(3, 2.0, 0.75), one(4, 50.0, None), one(5, 99.0, 1.0, "other")]
    assert best(found[:4]) is found[1]
    assert best(found) is None
    assert best([]) is None
    assert best([one(1, 9.0, None, "episode_return"), one(2, 8.0, None, "episode_return")]).env_steps == 1
