"""What the numbers of a run may depend on besides its settings."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

PACKAGES = ("bcq", "jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "numpy")


@dataclass(frozen=True)
class Origin:
    """The software and the machine that computed something."""

    versions: dict[str, str]
    commit: str | None
    device: str
    threads: int | None

    @classmethod
    def of_this_process(cls) -> "Origin":
        """The software and the machine of this process."""
        versions = {name: version(name) for name in PACKAGES}
        return cls(versions, commit(), jax.devices()[0].device_kind, threads())

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Origin":
        """The origin in an object that may contain more."""
        return cls(**{name: content[name] for name in cls.__dataclass_fields__})

    def differences(self, other: "Origin") -> list[str]:
        """Each difference of another origin that may change numbers, in words.

        The commit is not compared: it may have changed only a document.
        """
        mine, others = (
            {
                **{f"versions.{name}": number for name, number in each.versions.items()},
                **{"device": each.device, "threads": each.threads},
            }
            for each in (self, other)
        )
        return [
            f"{name} = {others.get(name)}, not {mine.get(name)}"
            for name in sorted(mine.keys() | others.keys())
            if mine.get(name) != others.get(name)
        ]


def use_compilation_cache(folder: Path | None = None) -> None:
    """Stores compiled code on disk, in the user's cache or this folder: the next start is fast."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    options = {
        "jax_compilation_cache_dir": str((folder or home / "bcq") / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }
    for name, value in options.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


def threads() -> int | None:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # on Linux, a process may be restricted to some cores
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def commit() -> str | None:
    """The commit of this code, if it is in a checkout."""
    folder = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
            start_new_session=True,  # Ctrl-C must not reach git
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
