"""What a run's numbers may depend on besides its settings."""

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
        """What this process computes with."""
        versions = {name: version(name) for name in PACKAGES}
        return cls(versions, commit(), jax.devices()[0].device_kind, threads())

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Origin":
        """The one that stands among other things in a file."""
        return cls(**{name: content[name] for name in cls.__dataclass_fields__})

    def differences(self, other: "Origin") -> list[str]:
        """What another origin has that differs and may change numbers, one line each.

        The commit is left out: it may have changed only a document.
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


def use_compilation_cache() -> None:
    """Keeps compiled code between calls, so that the second start is quick."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    options = {
        "jax_compilation_cache_dir": str(home / "bcq" / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }
    for name, value in options.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


def threads() -> int | None:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux, where fewer than all may be allowed
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def commit() -> str | None:
    """The commit this code stands at, where it is a checkout."""
    folder = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
            start_new_session=True,  # Ctrl-C is not for git
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
