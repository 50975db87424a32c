"""A trained run to a file: what goes into it, the check, the card."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from bcq.data.columns import Floats
from bcq.data.dataset import Dataset
from bcq.export.content import Card, Content, Mode, content_of
from bcq.export.files import SAFETENSORS, actor_of, encode, require_place, write
from bcq.export.parity import Parity, compare, noise_for, require_parity
from bcq.runs.configuration import LoggedBatch
from bcq.runs.directory import Run
from bcq.runs.origin import commit
from bcq.system.errors import InputError, require_seed
from bcq.system.files import read_json
from bcq.training.policy import Policy

CHECKED = 1_000  # states
# What a card tells of a judgement.
SAID = (
    *("verdict", "objections", "policy", "behaviour", "difference"),
    *("fit_on", "episodes", "discount"),
)


def export_policy(
    run: Run,
    path: Path,
    *,
    dataset: Dataset | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    mode: Mode = "deterministic",
    fallback: Sequence[str | float] | None = None,
    verdict: Path | None = None,
    seed: int = 0,
    force: bool = False,
) -> Parity:
    """Writes the policy of a run's newest checkpoint to an .onnx or a .safetensors file.

    The file is first compared with the learner, and not written if they differ. `dataset` is the
    batch that the run was trained on: its states are those of the comparison, and the file then
    knows their range. `labels` are the names of its columns. `fallback` is the action of an
    observation that is not finite. `verdict` is what a judge said about this checkpoint, in JSON.
    """
    require_place(path, force=force)
    require_seed(seed)
    card = card_of(run, dataset, labels or {})
    if verdict is not None:
        card["verdict"] = verdict_of(verdict, run)
    policy = run.policy()
    content = content_of(policy, card, mode=mode, fallback=fallback, dataset=dataset, seed=seed)
    encoded = encode(content, path.suffix)
    states = states_of(policy, dataset, seed)
    noise = noise_for(content, len(states), seed)
    parity = compare(policy, content, actor_of(encoded, path.suffix), states, noise)
    require_parity(parity)
    write(encode(with_check(content, parity, dataset), path.suffix), path)
    return parity


def with_check(content: Content, parity: Parity, dataset: Dataset | None) -> Content:
    """The content with the result of its check on the card."""
    states = "random, around the scaling" if dataset is None else "of the batch"
    return Content(content.arrays, {**content.card, "checked": {"states": states, **vars(parity)}})


def states_of(policy: Policy, dataset: Dataset | None, seed: int) -> Floats:
    """States of the batch, at random; without it, normal ones around what the scaling knows."""
    random = np.random.default_rng(seed)
    if dataset is not None:
        rows = random.choice(len(dataset), min(CHECKED, len(dataset)), replace=False)
        return dataset.observations[np.sort(rows)]
    states = random.standard_normal((CHECKED, policy.task.observation_size), np.float32)
    scaling = policy.task.scaling
    return states if scaling is None else states * scaling.spread + scaling.centre


def card_of(run: Run, dataset: Dataset | None, labels: Mapping[str, Sequence[str]]) -> Card:
    """What the file is, for people and programs."""
    config, batch = run.config, run.config.dataset
    if not isinstance(batch, LoggedBatch):
        raise InputError(f"{run.directory}: learned online, not from a batch")
    if dataset is not None and dataset.fingerprint != batch.fingerprint:
        raise InputError(f"this is not the batch that {run.directory} was trained on")
    stored, layout, size = config.as_json(), config.task.layout, config.task.observation_size
    columns = layout.labels or labels.get("observations", ())
    return {
        "algorithm": config.algorithm_name,
        "settings": stored["settings"],
        "updates": run.checkpoint_step(),
        "seed": config.schedule.seed,
        "task": stored["task"],
        "observation_columns": list(columns) if len(columns) == size else None,
        "action_columns": list(labels.get("actions", ())) or None,
        "units": "those of the batch",
        "dataset": stored["dataset"],
        "trained_by": {"versions": stored["versions"], "commit": stored["commit"]},
        "exported_by": {"bcq": version("bcq"), "commit": commit()},
    }


def verdict_of(path: Path, run: Run) -> Card:
    """The verdict in a file, which must be about the newest checkpoint of the run."""
    content = read_json(path)
    try:
        weights = content["chosen"]["sha256"]
        said = {name: content[name] for name in SAID}
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path}: is not what a judge says in JSON; judge the run again"
        ) from error
    if weights != run.checkpoints()[-1]["sha256"]:
        raise InputError(f"{path}: is about another checkpoint than the one to export; judge it")
    return said


def as_text(card: Card) -> str:
    """A card to read."""
    return json.dumps(card, indent=2, ensure_ascii=False)


def files_of(path: Path) -> str:
    """What was written, in words."""
    return f"{path}, read_policy.py" if path.suffix == SAFETENSORS else str(path)
