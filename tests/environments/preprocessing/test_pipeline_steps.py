from typing import get_args

from distrl.config.preprocessing import ActionStep, ConcatStep, EwmaBaselineStep, PreprocessingStep, StackStep
from distrl.environments.preprocessing.pipeline import FITS


def test_every_step_of_the_configuration_has_its_function():
    steps = set(get_args(get_args(PreprocessingStep)[0]))
    others = {step for step in steps if issubclass(step, ActionStep)} | {ConcatStep, StackStep, EwmaBaselineStep}
    assert FITS.keys() == {step.model_fields["step"].default for step in steps - others}
