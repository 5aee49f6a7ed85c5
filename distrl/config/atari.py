"""AtariParameters: every choice in how a game of the Arcade Learning Environment becomes an environment."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from distrl.config.section import Section

Frames = Annotated[int, Field(ge=1, strict=True)]
Pixels = Annotated[int, Field(ge=1, strict=True)]


class AtariParameters(Section):
    """The protocol of Machado et al. 2018 by default, except for the number of actions: sticky actions, four frames for
    each action, the maximum over the last two, episodes that are whole games of at most half an hour, no no-ops."""

    repeat_action_probability: float = Field(0.25, ge=0.0, le=1.0)
    """Sticky actions: probability, at every frame, that the console repeats its previous action."""
    frame_skip: Frames | tuple[Frames, Frames] = 4
    """Frames that an action lasts; [low, high]: low … high - 1 with equal probability, drawn at every step."""
    max_pool: bool = True
    """Each pixel is the maximum over the last two frames of a step, as games draw some objects in every other frame."""
    noop_max: int = Field(0, ge=0)
    """A game begins after 1 … noop_max frames without action, drawn anew; 0: at once."""
    fire_reset: bool = False
    """Press FIRE for one frame when a game begins, if the game has it. After a lost life the policy must press it."""
    episodic_life: bool = False
    """A lost life is `terminated` for the learner: no value beyond it. The game goes on, and its return is whole."""
    life_loss_reward: float = Field(0.0, allow_inf_nan=False)
    """Paid in addition for each lost life, the last one included; it counts in the episode's return."""
    full_action_space: bool = False
    """All 18 actions, as Machado et al. recommend, instead of those that do something in this game."""
    max_frames_per_episode: int = Field(108_000, ge=1)
    """A game of so many frames (half an hour) is truncated, after the current step."""
    size: tuple[Pixels, Pixels] = (84, 84)
    """[height, width] to which the screen of 210 x 160 is scaled, by area."""
    greyscale: bool = True
    """One channel of luminance in place of red, green and blue."""
    stack: int = Field(4, ge=1)
    """Number of observations that the policy sees together; each is sent and stored once."""
    threads: int = Field(1, ge=1)
    """Threads of one actor, for environment.vectorization: ale only."""

    @model_validator(mode="after")
    def _skip_is_a_range(self) -> Self:
        if isinstance(self.frame_skip, tuple) and self.frame_skip[0] >= self.frame_skip[1]:
            low, high = self.frame_skip
            raise ValueError(f"frame_skip: [{low}, {high}] holds no number; [2, 5] stands for 2, 3 and 4")
        return self
