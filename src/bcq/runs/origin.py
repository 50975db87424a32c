"""What a run's numbers may depend on besides its settings."""

import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import jax

from bcq.system.files import Row


def surroundings() -> Row:
    """Versions, commit, device and threads: what else the numbers may depend on."""
    packages = ("bcq", "jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "numpy")
    return {
        "versions": {name: version(name) for name in packages},
        "commit": commit(),
        "device": jax.devices()[0].device_kind,
        "threads": threads(),
    }


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
