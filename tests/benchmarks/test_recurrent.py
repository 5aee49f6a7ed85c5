"""Tasks that need memory: what they pay, by hand; and that a training of them is measured."""

import numpy as np
import pytest

from benchmarks import recurrent
from benchmarks.recurrent import RepeatPrevious, TMaze


def test_the_suit_of_four_cards_ago_pays():
    for offset, total in ((0, 1.0), (1, -1.0)):
        environment, cards, paid, ended = RepeatPrevious(), [], 0.0, False
        card, _ = environment.reset(seed=3)
        while not ended:
            cards.append(card)
            said = cards[-5] if len(cards) > 4 else 0
            card, reward, ended, _, _ = environment.step((said + offset) % 4)
            paid += reward
        assert (len(cards), paid) == (51, pytest.approx(total * 47 / 48))
        assert np.bincount([*cards, card]).tolist() == [13] * 4


@pytest.mark.parametrize(("turn", "paid"), [(0, 4.0), (1, -0.1)])
def test_the_first_observation_says_where_to_turn(turn, paid):
    environment = TMaze()
    seen, _ = environment.reset(seed=5)
    goal = 1 if seen[0] > 0 else 2
    rewards = [environment.step(0)[1] for _ in range(10)]
    assert rewards == [0.0] * 10
    assert environment.step(0)[1:3] == (-0.1, False)  # the corridor is at its end
    assert environment.step(3 - goal if turn else goal)[1:3] == (paid, True)


@pytest.mark.long
def test_trainings_are_measured(tmp_path, capsys):
    arguments = ["--only", "t-maze-lstm", "--seeds", "1", "--env-steps", "1024", "--out", str(tmp_path)]
    assert recurrent.main(arguments) == 0
    *_, first, second = capsys.readouterr().out.strip().splitlines()
    assert first.startswith("| t-maze-lstm | orthogonal | ")
    assert second.startswith("| t-maze-lstm | uniform | ")
