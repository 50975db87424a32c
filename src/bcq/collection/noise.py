"""Random actions and noise on actions, on the scale of the environment."""

import numpy as np

from bcq.data.bounds import ActionBounds, Choices
from bcq.data.columns import Column, Floats
from bcq.system.errors import InputError


def uniform(bounds: ActionBounds, generator: np.random.Generator) -> Column:
    """A uniformly random action: any within the bounds, or one of the choices."""
    if isinstance(bounds, Choices):
        return np.array([generator.integers(bounds.outputs)])
    return generator.uniform(bounds.low, bounds.high)


def perturbed(
    action: Floats, noise: float, bounds: ActionBounds, generator: np.random.Generator
) -> Column:
    """An action with noise.

    Normal noise is in half-widths of the action range; the action is clipped to the bounds. A
    choice becomes a uniformly random one with probability `noise`: there is no choice nearby.
    """
    if isinstance(bounds, Choices):
        return uniform(bounds, generator) if generator.random() < noise else action
    drawn = generator.normal(0, noise, len(bounds.low)) * bounds.half_width
    return np.clip(action + drawn, bounds.low, bounds.high)


def require_noise(noise: float, bounds: ActionBounds) -> None:
    """Refuses noise that is no probability, if the actions are choices."""
    if isinstance(bounds, Choices) and noise > 1:
        raise InputError(
            f"noise: {noise:g} is above 1; if the actions are choices, noise is the probability "
            "of a random one"
        )
