"""Findings as text and as JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcq.data.columns import Finding

SEVERITIES = ("error", "warning", "note")


SHOWN_ROWS = 5


def as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The findings as JSON values."""
    return [
        {
            "kind": finding.kind,
            "severity": finding.severity,
            "field": finding.field,
            "problem": finding.problem,
            "rows": [] if finding.rows is None else finding.rows[:SHOWN_ROWS].tolist(),
            "count": 0 if finding.rows is None else len(finding.rows),
            "why": finding.why,
            "remedy": finding.remedy,
            "mended_by_fix": finding.option == "fix",
        }
        for finding in findings
    ]


def as_text(findings: Sequence[Finding]) -> str:
    """The findings as text."""
    counts = [(s, sum(f.severity == s for f in findings)) for s in SEVERITIES]
    words = [f"{n or 'no'} {severity}{'' if n == 1 else 's'}" for severity, n in counts]
    lines = [f"doctor         {', '.join(words)}"]
    for finding in findings:
        rows = "" if finding.rows is None else f" [{rows_in_words(finding.rows)}]"
        lines += [
            f"{finding.severity:<14} {finding.field}: {finding.problem}{rows}",
            f"{'':<14} {finding.why}",
            f"{'':<14} -> {finding.remedy}",
        ]
    return "\n".join(lines)


def rows_in_words(rows: NDArray[np.int64]) -> str:
    """For example row 3, or rows 3, 17, ... (12 in total)."""
    shown = ", ".join(map(str, rows[:SHOWN_ROWS].tolist()))
    if len(rows) <= SHOWN_ROWS:
        return f"row{'s' if len(rows) > 1 else ''} {shown}"
    return f"rows {shown}, ... ({len(rows)} in total)"
