"""Reads a policy that `bcq export` wrote to a .safetensors file, and acts by it.

It needs NumPy and safetensors, nothing else. Copy it to where the policy is used:

    policy = read_policy.load("policy.safetensors")
    actions = policy.act(observations)  # (rows, numbers), in the units of the log
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

Numbers = NDArray[Any]


class Policy:
    """A policy from its arrays and its card, which says what they are."""

    def __init__(self, arrays: dict[str, Numbers], card: dict[str, Any]):
        if card["format"] != 1:
            raise ValueError(f"format {card['format']}: this reader knows format 1")
        self.arrays, self.card, self.acting = arrays, card, card["acting"]
        self.names: list[str] | None = card["task"].get("action_names")  # of choices
        self.fallback = arrays["fallback"]  # the one of the export, for `act(..., fallback=...)`

    def act(
        self, observations: Any, *, noise: Any = None, permitted: Any = None, fallback: Any = None
    ) -> Numbers:
        """One action per row, (rows, numbers); of choices their numbers, (rows,) integers.

        An observation that is not finite is an error, unless there is a `fallback`: the action to
        take instead. `permitted`, (rows, choices), says which choices there are, if not all.
        `noise` is standard normal, (rows, ...), for files of the mode noise-input.
        """
        numbers = self.numbers(observations)
        valid = np.asarray(np.isfinite(numbers).all(axis=1))
        self.require(valid, fallback)
        inputs = self.scaled(np.where(valid[:, None], numbers, np.float32(0)))
        kind = getattr(self, self.acting["kind"])
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            if self.names is None:
                actions = kind(inputs, self.noise(noise, len(inputs)))
                actions = actions * self.arrays["action_half_width"] + self.arrays["action_centre"]
                actions = np.clip(actions, self.arrays["action_low"], self.arrays["action_high"])
                valid &= np.isfinite(actions).all(axis=1)
                self.require(valid, fallback)
            else:
                there = np.ones((len(inputs), len(self.names)), bool)
                there &= True if permitted is None else np.asarray(permitted, bool)
                if not there.any(axis=1).all():
                    raise ValueError("permitted: a row has no choice")
                actions = kind(inputs, there)
        if not valid.all():
            actions[~valid] = np.asarray(fallback, actions.dtype).reshape(actions[:1].shape)
        return np.asarray(actions)

    def choose(self, observations: Any, **options: Any) -> list[str]:
        """The names of the choices, one per row; the options are those of `act`."""
        if self.names is None:
            raise ValueError("the actions of this policy are numbers, not choices; use act")
        numbers = self.act(observations, **options)
        if (numbers >= len(self.names)).any():
            raise ValueError("fallback: is not the number of a choice")
        return [self.names[number] for number in numbers]

    def inside(self, observations: Any) -> NDArray[np.bool_]:
        """Whether each observation is within the range of the batch, if the file knows it."""
        numbers = self.numbers(observations)
        low, high = self.arrays.get("seen_low", -np.inf), self.arrays.get("seen_high", np.inf)
        return np.asarray((np.isfinite(numbers) & (low <= numbers) & (numbers <= high)).all(axis=1))

    def numbers(self, observations: Any) -> Numbers:
        """The observations in single precision; anything of another shape is refused."""
        with np.errstate(over="ignore"):  # what becomes infinite is not valid
            numbers = np.asarray(observations, np.float32)
        size = self.card["task"]["observation_size"]
        if numbers.ndim != 2 or numbers.shape[1] != size:
            raise ValueError(f"observations: shape {numbers.shape}, but it must be (rows, {size})")
        return numbers

    def require(self, valid: Numbers, fallback: Any) -> None:
        """Refuses rows without an action, unless there is a fallback."""
        if fallback is None and not valid.all():
            raise ValueError(f"observations, row {np.argmin(valid)}: there is no finite action")

    def scaled(self, numbers: Numbers) -> Numbers:
        """Observations as the networks see them."""
        if "centre" not in self.arrays:
            return numbers
        with np.errstate(over="ignore"):  # clipped
            scaled = (numbers - self.arrays["centre"]) / self.arrays["spread"]
        return np.clip(scaled, -self.acting["scaled_limit"], self.acting["scaled_limit"])

    def noise(self, given: Any, rows: int) -> Numbers:
        """The noise of each row: the latents in the file, or what was given."""
        shape, by_input = (rows, *self.acting["noise_shape"]), self.acting["mode"] == "noise-input"
        if (given is not None) != by_input or (by_input and np.shape(given) != shape):
            raise ValueError(f"noise: the file has the mode {self.acting['mode']}, shape {shape}")
        latents = self.arrays.get("latents", np.float32(0)) if given is None else given
        return np.broadcast_to(np.asarray(latents, np.float32), shape)

    def network(self, name: str, *inputs: Numbers) -> Numbers:
        """Inputs side by side through fully connected layers, with ReLU between them."""
        hidden, number = np.concatenate(inputs, axis=-1), 0
        while (weight := self.arrays.get(f"{name}.{number}.weight")) is not None:
            hidden = np.maximum(hidden, 0) if number else hidden
            hidden = hidden @ weight + self.arrays[f"{name}.{number}.bias"]
            number += 1
        return hidden

    def actor(self, inputs: Numbers, noise: Numbers) -> Numbers:  # noqa: D102
        return np.tanh(self.network("actor", inputs))

    def bins(self, inputs: Numbers, noise: Numbers) -> Numbers:  # noqa: D102
        shape = (-1, len(self.fallback), self.acting["num_bins"])
        best = self.network("network", inputs).reshape(shape).argmax(axis=-1)
        return ((2 * best + 1) / shape[-1] - 1).astype(np.float32)

    def sample(self, inputs: Numbers, noise: Numbers) -> Numbers:  # noqa: D102
        limit = self.acting["latent_clip"]
        return np.tanh(self.network("decoder", inputs, np.clip(noise, -limit, limit)))

    def candidates(self, inputs: Numbers, noise: Numbers) -> Numbers:  # noqa: D102
        rows, count, size = noise.shape
        inputs = np.repeat(inputs, count, axis=0)
        made = self.sample(inputs, noise.reshape(-1, size))
        moved = np.tanh(self.network("perturbation", inputs, made))
        made = np.clip(made + self.acting["max_perturbation"] * moved, -1, 1)
        best = self.network("critic", inputs, made).reshape(rows, count).argmax(axis=1)
        return np.asarray(made[np.arange(rows) * count + best])

    def best(self, inputs: Numbers, there: Numbers) -> Numbers:  # noqa: D102
        return np.where(there, self.network("network", inputs), -np.inf).argmax(axis=1)

    def likely(self, inputs: Numbers, there: Numbers) -> Numbers:  # noqa: D102
        logits = np.where(there, self.network("behaviour", inputs), np.float32(-np.inf))
        share = np.exp(logits - logits.max(axis=1, keepdims=True))
        return self.best(inputs, share > self.acting["threshold"])


def load(path: str | Path) -> Policy:
    """The policy in a file."""
    with safe_open(str(path), "np") as file:
        card = json.loads((file.metadata() or {})["card"])
        return Policy({name: file.get_tensor(name) for name in file.keys()}, card)  # noqa: SIM118
