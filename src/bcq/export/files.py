"""Exported files of both kinds: their bytes, how to act by them, and their cards."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from bcq.export import read_policy
from bcq.export.content import FORMAT, Card, Content
from bcq.system.errors import InputError
from bcq.system.files import replacing, require_regular, write_text

ONNX, SAFETENSORS = SUFFIXES = (".onnx", ".safetensors")
READER = Path(read_policy.__file__)
QUIET = 3  # severity of messages of onnxruntime: errors

# Actions for observations and, if the file takes it, noise.
Actor = Callable[[NDArray[np.float32], NDArray[np.float32] | None], NDArray[Any]]


def require_onnx(name: str) -> Any:
    """A package that only ONNX files need."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"the package {name}, which ONNX files need, is not installed", option="onnx"
        ) from error


def require_place(path: Path, *, force: bool) -> None:
    """Refuses a path that cannot be written, or that has a file already."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: unknown kind of file; use {' or '.join(SUFFIXES)}")
    require_regular(path)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder")
    if (path.parent / "config.json").exists() and path.name.startswith("step-"):
        raise InputError(f"{path}: has the name of a checkpoint of the run; give another name")
    if force:
        return
    if path.exists():
        raise InputError(f"{path}: already exists", option="force")
    reader = path.with_name(READER.name)
    if path.suffix == SAFETENSORS and reader.exists() and not same_text(reader, READER):
        raise InputError(f"{reader}: already exists, with another content", option="force")


def same_text(one: Path, other: Path) -> bool:
    """Whether two files have the same bytes."""
    require_regular(one)
    return one.read_bytes() == other.read_bytes()


def encode(content: Content, suffix: str) -> bytes:
    """The bytes of a file."""
    if suffix == ONNX:
        require_onnx("onnx")
        made: bytes = import_module("bcq.export.graph").model_of(content).SerializeToString()
        return made
    arrays = {name: np.ascontiguousarray(array) for name, array in content.arrays.items()}
    return safetensors.numpy.save(arrays, metadata={"card": json.dumps(content.card)})


def actor_of(encoded: bytes, suffix: str) -> Actor:
    """Acting by the bytes of a file, as its users will."""
    if suffix == SAFETENSORS:
        return by_reader(encoded)
    session = session_of(encoded)

    def act(
        observations: NDArray[np.float32], noise: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        given = {"observation": observations, **({} if noise is None else {"noise": noise})}
        found: NDArray[np.float32] = session.run(["action"], given)[0]
        return found

    return act


def session_of(encoded: bytes, threads: int = 0) -> Any:
    """A session of onnxruntime; with 0 threads, it decides how many."""
    runtime = require_onnx("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = QUIET
    options.intra_op_num_threads = threads
    return runtime.InferenceSession(encoded, options, providers=["CPUExecutionProvider"])


def by_reader(encoded: bytes) -> Actor:
    """Acting by the reader that is copied beside the file."""
    arrays = safetensors.numpy.load(encoded)
    length = int.from_bytes(encoded[:8], "little")
    card = json.loads(json.loads(encoded[8 : 8 + length])["__metadata__"]["card"])
    policy = read_policy.Policy(arrays, card)
    return lambda observations, noise: policy.act(observations, noise=noise)


def write(encoded: bytes, path: Path) -> None:
    """Writes a file, and the reader beside one that needs it."""
    if path.suffix == SAFETENSORS:
        write_text(path.with_name(READER.name), READER.read_text(encoding="utf-8"))
    with replacing(path) as temporary:
        temporary.write_bytes(encoded)


def describe(path: Path) -> Card:
    """The card of an exported file."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    require_regular(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: is not {' or '.join(SUFFIXES)}")
    try:
        return checked_card(metadata_of(path)["card"])
    except InputError as error:
        raise error.within(path) from error
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: has no card; it is not an exported policy") from error


def checked_card(text: str) -> Card:
    """A card of the format that this version knows."""
    card: Card = json.loads(text)
    if card["format"] != FORMAT:
        raise InputError(f"does not have the format of this version ({FORMAT})")
    return card


def metadata_of(path: Path) -> dict[str, str]:
    """The texts that a file has besides its arrays."""
    if path.suffix == SAFETENSORS:
        try:
            with safe_open(path, "np") as file:
                return file.metadata() or {}
        except SafetensorError as error:
            raise ValueError(path) from error
    onnx = require_onnx("onnx")
    try:
        model = onnx.load(path, load_external_data=False)
    except import_module("google.protobuf.message").DecodeError as error:
        raise ValueError(path) from error
    return {each.key: each.value for each in model.metadata_props}
