from typing import get_args

from distrl.config.observation_steps import ConcatStep, StackStep
from distrl.config.preprocessing import ActionStep, EwmaBaselineStep, PreprocessingStep
from distrl.environments.preprocessing.observation import FITS


def test_every_step_of_the_configuration_is_somebodys():
    steps = set(get_args(get_args(PreprocessingStep)[0]))
    others = {step for step in steps if issubclass(step, ActionStep)} | {ConcatStep, StackStep, EwmaBaselineStep}
    assert FITS.keys() | others == steps
    assert not FITS.keys() & others
