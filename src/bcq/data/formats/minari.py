"""Minari data sets: `data/metadata.json` and `data/main_data.hdf5`, one group per episode.

They are read and written with h5py only: Minari itself follows links out of the file and creates
the environments that the metadata names.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
from numpy.typing import NDArray

from bcq.data.bounds import Choices
from bcq.data.columns import MASKS, Column, Columns, Finding, Flags, Provenance
from bcq.data.dataset import Dataset
from bcq.data.episodes import cut
from bcq.data.formats.hdf5 import new_file, read_column
from bcq.data.layout import PLAIN, Layout
from bcq.system import interruption
from bcq.system.errors import InputError
from bcq.system.files import make_directory, require_regular

PREFIX = "minari:"
NAME = re.compile(r"([-\w]+/)*[-\w]+-v\d+", re.ASCII)  # of a data set: namespace/name-v0
CHOICE_NAMES = "bcq_action_names"  # in the metadata
LAYOUT = "0.5.0"  # version of Minari from which on the written files can be read
FLAT = ("rewards", "terminations", "truncations")
INFOS = ("qpos", "qvel", *MASKS, "propensities")  # optional, one row for each step


def folder_of(name: str) -> Path:
    """The folder in which Minari keeps a data set."""
    identity = name.removeprefix(PREFIX)
    if not NAME.fullmatch(identity):
        raise InputError(f"{name}: is not a Minari data set; write it like {PREFIX}space/name-v0")
    root = os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets"
    return Path(root) / identity


def read(folder: Path) -> Columns:
    """Reads all episodes in order; their T+1 observations become T pairs."""
    folder = folder / "data" if (folder / "data").is_dir() else folder
    try:
        for name in ("metadata.json", "main_data.hdf5"):
            if folder.resolve() not in (folder / name).resolve().parents:
                raise InputError(f"{name}: points outside the folder; copy the file into it")
            require_regular(folder / name)
        metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
        if (kind := metadata.get("data_format", "hdf5")) != "hdf5":
            raise InputError(f"its data format is {kind}; create it again with data_format='hdf5'")
        require_vectors(metadata)
        with h5py.File(folder / "main_data.hdf5", "r") as file:
            episodes = list(read_episodes(file))
        if not episodes:
            raise InputError("has no steps")
        low, high = bounds_in(metadata)
        choices, first = choices_in(metadata)
        provenance, layout = provenance_in(metadata), layout_in(metadata)
    except InputError as error:
        raise error.within(folder) from error
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{folder}: cannot be read as a Minari data set: {error}") from error
    arrays = {name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}
    unflagged = unflagged_ends(arrays, [len(episode["rewards"]) for episode in episodes])
    findings = (ends_without_flag(np.flatnonzero(unflagged)),) if unflagged.any() else ()
    arrays = cut(arrays, unflagged)
    if choices is not None:
        arrays["actions"] = arrays["actions"].reshape(len(arrays["rewards"]), -1) - first
    known = Columns(str(folder), arrays, provenance, low, high, findings=findings)
    return replace(known, choices=choices, layout=layout)


def require_vectors(metadata: Mapping[str, Any]) -> None:
    """Refuses spaces that are not vectors of numbers; actions may be choices."""
    for name in ("observation_space", "action_space"):
        if name in metadata:
            space = json.loads(metadata[name])
            if space["type"] == "Discrete" and name == "action_space":
                continue
            if space["type"] != "Box" or len(space["shape"]) != 1:
                raise InputError(
                    f"{name}: is {space['type']} of shape {space.get('shape')}; only vectors of "
                    "numbers are supported; flatten it with a Gymnasium wrapper and record it again"
                )


def read_episodes(file: h5py.File) -> Iterator[dict[str, Column]]:
    """Reads each episode under our names; all must have the same shapes."""
    row, shapes = 0, None
    for number in range(len(file)):
        group = f"episode_{number}"
        if not isinstance(file.get(group, getlink=True), h5py.HardLink):
            raise InputError(f"{group}: is missing or is a link")
        try:
            episode = read_episode(file[group])
        except InputError as error:
            raise error.within(group) from error
        found = {name: values.shape[1:] for name, values in episode.items()}
        if shapes is not None and found != shapes:
            changed = next(name for name in shapes if found.get(name) != shapes[name])
            raise InputError(
                f"{changed}, row {row}: has shape {found.get(changed)} from {group} on but "
                f"{shapes[changed]} before; a batch needs the same spaces in every episode"
            )
        row, shapes = row + len(episode["rewards"]), found
        if len(episode["rewards"]):
            yield episode


def read_episode(group: h5py.Group) -> dict[str, Column]:
    """Reads one episode and checks the lengths of its arrays."""
    observations, actions, *flat = (
        read_required(group, n) for n in ("observations", "actions", *FLAT)
    )
    rewards, terminated, truncated = (values.reshape(len(values)) for values in flat)
    steps = len(rewards)
    if len(observations) != steps + 1:
        raise InputError(
            f"observations: has {len(observations)} rows for {steps} rewards; an episode of "
            "Minari has one more observation than steps"
        )
    for name, values in (("actions", actions), *zip(FLAT, flat, strict=True)):
        if len(values) != steps:
            raise InputError(f"{name}: has {len(values)} rows for {steps} rewards")
    found = {name: read_column(group, f"infos/{name}") for name in INFOS}
    states = {name: values for name, values in found.items() if values is not None}
    if any(len(values) < steps for values in states.values()):
        raise InputError(f"infos: has fewer rows than the {steps} steps")
    return {
        "observations": observations[:-1],
        "actions": actions,
        "rewards": rewards,
        "next_observations": observations[1:],
        "terminated": terminated,
        "truncated": truncated,
        **{name: values[:steps] for name, values in states.items()},
    }


def read_required(group: h5py.Group, name: str) -> Column:
    """Reads an array that every episode must have."""
    values = read_column(group, name)
    if values is None:
        raise InputError(f"{name}: is missing")
    return values


def unflagged_ends(arrays: Mapping[str, Column], lengths: list[int]) -> Flags:
    """Last rows of episodes without a flag, except the last episode, which may be unfinished."""
    ends = np.zeros(len(arrays["rewards"]), bool)
    ends[np.cumsum(lengths)[:-1] - 1] = True
    return ends & (arrays["terminated"] == 0) & (arrays["truncated"] == 0)


def ends_without_flag(rows: NDArray[np.int64]) -> Finding:
    """Reports that these ends are treated as time-outs."""
    return Finding(
        "end-without-flag",
        "truncated",
        f"{len(rows)} episodes end without a flag",
        "no action needed if the log was cut there",
        "they are treated as time-outs: values bootstrap from the observation that follows",
        rows,
        "note",
    )


def bounds_in(metadata: Mapping[str, Any]) -> tuple[Column | None, Column | None]:
    """The bounds of the action space, if they are finite."""
    if "action_space" not in metadata:
        return None, None
    space = json.loads(metadata["action_space"])
    if space["type"] == "Discrete":
        return None, None
    low, high = (np.array(space[name], float).reshape(-1) for name in ("low", "high"))
    return (low, high) if np.isfinite([low, high]).all() else (None, None)


def choices_in(metadata: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, int]:
    """The names of the choices, and the number of the first; None if actions are not choices."""
    space = json.loads(metadata.get("action_space", "{}"))
    if space.get("type") != "Discrete":
        return None, 0
    first, count = int(space.get("start", 0)), int(space["n"])
    if isinstance(names := metadata.get(CHOICE_NAMES), list) and len(names) == count:
        return tuple(map(str, names)), first
    return tuple(str(int(name) + first) for name in Choices.numbered(count).names), first


def provenance_in(metadata: Mapping[str, Any]) -> Provenance:
    """The provenance that this package wrote, or else what Minari stores."""
    if isinstance(ours := metadata.get("bcq"), dict):
        known: dict[str, Any] = {n: v for n, v in ours.items() if isinstance(v, str | int)}
        return Provenance(**known)
    spec = metadata.get("env_spec")
    return Provenance(
        environment=None if spec is None else str(json.loads(spec)["id"]),
        behaviour=metadata.get("algorithm_name"),
    )


def layout_in(metadata: Mapping[str, Any]) -> Layout:
    """What the numbers of an observation are, if this package wrote it."""
    if isinstance(ours := metadata.get("bcq"), dict) and "layout" in ours:
        return Layout.from_json(ours["layout"])
    return PLAIN


def write(dataset: Dataset, folder: Path, identity: str) -> None:
    """Writes the batch completely or not at all."""
    if folder.exists():
        raise InputError(f"cannot write {folder}: it already exists")
    require_continuous(dataset, folder)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    make_directory(temporary / "data")
    try:
        with new_file(temporary / "data" / "main_data.hdf5", track_order=True) as (file, disk):
            for number, (start, stop) in enumerate(dataset.episodes.tolist()):
                write_episode(file.create_group(f"episode_{number}"), dataset, number, start, stop)
                disk.raise_failure()
                interruption.check()
        size = (temporary / "data" / "main_data.hdf5").stat().st_size
        metadata = metadata_of(dataset, identity) | {"dataset_size": round(size / 1e6, 1)}
        (temporary / "data" / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        temporary.rename(folder)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def require_continuous(dataset: Dataset, folder: Path) -> None:
    """Refuses next observations that are not in the next row: Minari cannot store them."""
    inside = ~dataset.is_end[:-1]
    same = (dataset.next_observations[:-1] == dataset.observations[1:]).all(axis=1)
    if (bad := np.flatnonzero(inside & ~same)).size:
        raise InputError(
            f"cannot write {folder}: next_observations, row {bad[0]}: is not the observation "
            f"of the next row (one of {len(bad)} such rows); write HDF5, or cut the episodes there",
            option="fix",
        )


def write_episode(group: h5py.Group, dataset: Dataset, number: int, start: int, stop: int) -> None:
    """Writes one episode: T steps, T+1 observations, and the simulator states before each step."""
    rows = slice(start, stop)
    last = dataset.next_observations[stop - 1 : stop]
    group.attrs.update({"id": number, "total_steps": stop - start})
    group["observations"] = np.concatenate([dataset.observations[rows], last])
    discrete = dataset.task.choices is not None
    actions = dataset.actions[rows]
    group["actions"] = actions[:, 0].astype(np.int64) if discrete else actions
    for name, values in zip(
        FLAT, (dataset.rewards, dataset.terminated, dataset.truncated), strict=True
    ):
        group[name] = values[rows]
    infos = group.create_group("infos")
    for name in INFOS:
        if (values := getattr(dataset, name)) is not None:
            infos[name] = values[rows]


def metadata_of(dataset: Dataset, identity: str) -> dict[str, Any]:
    """The metadata that Minari needs, and our provenance."""
    name = dataset.provenance.environment
    size = dataset.task.observation_size
    spec = {"env_spec": gymnasium.spec(name).to_json()} if name in gymnasium.registry else {}
    unbounded = np.full(size, math.inf, np.float32)
    layout = {} if dataset.layout == PLAIN else {"layout": dataset.layout.as_json()}
    return {
        "dataset_id": identity,
        "minari_version": LAYOUT,
        "data_format": "hdf5",
        "total_episodes": len(dataset.episodes),
        "total_steps": len(dataset),
        "observation_space": box(-unbounded, unbounded),
        **action_space(dataset),
        **spec,
        "algorithm_name": dataset.provenance.behaviour or "unknown",
        "bcq": vars(dataset.provenance) | layout,
    }


def action_space(dataset: Dataset) -> dict[str, Any]:
    """The space of the actions, and the names of choices, for which Minari has no place."""
    if (choices := dataset.task.choices) is None:
        return {"action_space": box(dataset.bounds.low, dataset.bounds.high)}
    space = {"type": "Discrete", "dtype": "int64", "start": 0, "n": len(choices)}
    return {"action_space": json.dumps(space), CHOICE_NAMES: list(choices)}


def box(low: Column, high: Column) -> str:
    """A space in the format of Minari."""
    return json.dumps(
        {
            "type": "Box",
            "dtype": "float32",
            "shape": list(low.shape),
            "low": low.tolist(),
            "high": high.tolist(),
        }
    )
