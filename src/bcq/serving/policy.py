"""An exported policy, loaded once: what it needs to know, and its actions."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bcq.data.bounds import TaskSpec
from bcq.data.columns import Flags, Floats
from bcq.data.formats.decisions import LogForm
from bcq.data.layout import ObservationColumn
from bcq.export import files, read_policy
from bcq.export.content import Card
from bcq.system.errors import InputError
from bcq.system.files import require_regular


class Acted(NamedTuple):
    """Actions of some rows."""

    actions: NDArray[Any]  # (rows, numbers); numbers of choices, (rows,)
    valid: Flags
    inside: Flags


Act = Callable[[Floats, Flags | None], Acted]


@dataclass(frozen=True)
class ServedPolicy:
    """A policy, its card, and how requests name things."""

    card: Card
    fingerprint: str  # of the file
    task: TaskSpec
    act: Act

    @property
    def columns(self) -> tuple[ObservationColumn, ...]:
        """The parts of an observation by name; none if their names are not known."""
        layout = self.task.layout
        if layout.columns and layout.past is None:
            return layout.columns
        return tuple(map(ObservationColumn, self.card.get("observation_columns") or ()))

    @property
    def has_fallback(self) -> bool:
        """Whether there is an action for observations that are not valid."""
        return bool(self.card.get("fallback_given"))

    @property
    def log_form(self) -> LogForm:
        """The form of its log of decisions."""
        readings = [column.name for column in self.task.layout.columns or self.columns]
        count = self.task.reading_size if not self.task.layout.columns else len(readings)
        return LogForm.of(self.task, readings[:count], self.card.get("action_columns") or ())


def open_policy(path: Path) -> ServedPolicy:
    """Loads an exported file, and acts once by it."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not an exported policy", option="export")
    require_regular(path)
    encoded = path.read_bytes()
    try:
        if path.suffix == files.SAFETENSORS:
            card, act = by_reader(path)
        elif path.suffix == files.ONNX:
            card, act = by_runtime(encoded)
        else:
            raise InputError(f"{path}: is not {' or '.join(files.SUFFIXES)}", option="export")
        task = TaskSpec.from_json(card["task"])
        names = card.get("observation_columns")
        if names is not None and len(names) != task.observation_size:
            raise ValueError(f"{len(names)} names of {task.observation_size} numbers")
        act(np.zeros((1, task.observation_size), np.float32), None)
    except InputError:
        raise
    except Exception as error:  # of any kind: two libraries read a file that may be damaged
        words = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path}: is not an exported policy ({words[:200]})", option="export"
        ) from error
    return ServedPolicy(card, hashlib.sha256(encoded).hexdigest()[:16], task, act)


def by_runtime(encoded: bytes) -> tuple[Card, Act]:
    """By onnxruntime, on one thread."""
    session = files.session_of(encoded, threads=1)
    card = files.checked_card(session.get_modelmeta().custom_metadata_map["card"])

    def act(observations: Floats, permitted: Flags | None) -> Acted:
        given: dict[str, Any] = {"observation": observations}
        if (noise := fresh_noise(card, len(observations))) is not None:
            given["noise"] = noise
        if permitted is not None:
            given["permitted"] = permitted
        return Acted(*session.run(["action", "valid", "inside"], given))

    return card, act


def by_reader(path: Path) -> tuple[Card, Act]:
    """By NumPy."""
    policy = read_policy.load(path)
    # No action, so that rows without one are seen.
    none: Any = np.full(len(policy.fallback), np.nan) if policy.names is None else len(policy.names)

    def act(observations: Floats, permitted: Flags | None) -> Acted:
        noise = fresh_noise(policy.card, len(observations))
        actions = policy.act(observations, noise=noise, permitted=permitted, fallback=none)
        valid = actions < none if policy.names else np.isfinite(actions).all(axis=1)
        actions[~valid] = policy.fallback.astype(actions.dtype)
        return Acted(actions, np.asarray(valid), policy.inside(observations))

    return policy.card, act


def fresh_noise(card: Card, rows: int) -> Floats | None:
    """Fresh noise, if the policy takes it: it then samples as the learner does."""
    if card["acting"]["mode"] != "noise-input":
        return None
    shape = (rows, *card["acting"]["noise_shape"])
    return np.random.default_rng().standard_normal(shape, np.float32)
