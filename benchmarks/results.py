"""Where every benchmark leaves its numbers: benchmarks/results.json, a section each."""

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bcq.runs.origin import commit
from bcq.system.files import write_text

RESULTS = Path(__file__).with_name("results.json")


def record(section: str, numbers: object) -> None:
    """Replaces a section, with the commit and the machine it was measured on."""
    content = load() if RESULTS.exists() else {}
    content[section] = {"commit": commit(), "machine": machine(), "measured": numbers}
    write_text(RESULTS, json.dumps(content, indent=1) + "\n")


def load() -> dict[str, Any]:
    """All sections."""
    return json.loads(RESULTS.read_text())


def machine() -> str:
    """The processor and how many of its cores there are."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in lines(info) if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def lines(path: Path) -> list[str]:
    """Of a file that may be missing."""
    return path.read_text().splitlines() if path.exists() else []


def spread(values: Iterable[float], form: str = "{:.3g}") -> str:
    """Median and quartiles; of a single number, itself."""
    values = list(values)
    if len(values) == 1:
        return form.format(values[0])
    low, median, high = (form.format(v) for v in np.percentile(values, [25, 50, 75]))
    return f"{median} ({low} to {high})"
