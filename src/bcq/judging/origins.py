"""Where a policy comes from: its data, its training."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from bcq.data.columns import Finding
from bcq.data.dataset import Dataset
from bcq.data.doctor.report import rows_in_words
from bcq.judging.charts import counts_in, histogram
from bcq.judging.page import Element, element, paragraph, section, table
from bcq.runs.configuration import LoggedBatch
from bcq.runs.directory import Run

BINS = 20
QUANTILES = {"least": 0, "first quarter": 25, "median": 50, "third quarter": 75, "largest": 100}


def data_card(
    number: int, run: Run, dataset: Dataset, source: str, findings: Sequence[Finding]
) -> Element:
    """The part of the card about the log."""
    firsts, stops = dataset.episodes.T
    complete = int(dataset.is_end[stops - 1].sum())
    rows = [
        ("file", source),
        ("transitions", f"{len(dataset):,}"),
        (
            "episodes",
            f"{len(firsts):,} ({complete:,} with an end; {int(dataset.terminated.sum()):,} "
            "terminated)",
        ),
        ("kept aside", kept_aside(run, dataset)),
        *((name, str(value)) for name, value in vars(dataset.provenance).items() if value),
    ]
    fingerprint = element("code", dataset.fingerprint)
    return section(
        number,
        "Data card",
        table((), [*rows, ("SHA-256 of the data", fingerprint)], "The log"),
        *returns_of(dataset),
        *doctor(findings),
    )


def kept_aside(run: Run, dataset: Dataset) -> str:
    """Which episodes the run did not learn from."""
    batch = run.config.dataset
    hold_out = batch.hold_out if isinstance(batch, LoggedBatch) else None
    if hold_out is None:
        return "no episode; the policy learned from all of them"
    count = len(hold_out.episodes(dataset))
    how = "drawn at random" if hold_out.by == "random" else "the last ones of the log"
    return f"{count:,} episodes ({hold_out.share:.0%}), {how}; the policy did not learn from them"


def returns_of(dataset: Dataset) -> list[Element]:
    """How the returns of the complete episodes are distributed."""
    returns = dataset.episode_returns
    if len(returns) == 0:
        return [paragraph("No episode was logged to its end, so there are no returns.")]
    levels = np.percentile(returns, list(QUANTILES.values())).tolist()
    named = [("mean", returns.mean()), *zip(QUANTILES, levels, strict=True)]
    title = "Return of the logged episodes, undiscounted"
    found = [table((), [(name, f"{value:.5g}") for name, value in named], title)]
    if np.isfinite(returns).all() and np.ptp(returns) > 1e-6 * np.abs(returns).max():
        edges = np.linspace(returns.min(), returns.max(), BINS + 1)
        drawn = histogram("Episodes by return, share", edges, counts_in(returns, edges))
        found.append(element("figure", drawn, element("figcaption", "share of episodes by return")))
    return found


def doctor(findings: Sequence[Finding]) -> list[Element]:
    """What the checks of the data found."""
    heading = element("h3", "What the doctor found in the data")
    if not findings:
        return [heading, paragraph("Nothing: no errors, no warnings, no notes.")]
    told = [
        element(
            "div",
            paragraph(
                element("strong", f"{finding.severity}: "),
                f"{finding.field}: {finding.problem}",
                "" if finding.rows is None else f" [{rows_in_words(finding.rows)}]",
            ),
            paragraph(element("strong", "Why it matters: "), finding.why),
            paragraph(element("strong", "Remedy: "), finding.remedy),
            class_="example",
        )
        for finding in findings
    ]
    return [heading, element("div", *told, class_="list")]


def training_card(number: int, run: Run, step: int) -> Element:
    """The part of the card about the run."""
    config, origin = run.config, run.config.origin
    rows = [
        ("run", run.directory.name or str(run.directory)),
        ("algorithm", config.algorithm_name),
        ("judged checkpoint", f"update {step:,}"),
        ("seed", str(config.schedule.seed)),
        ("device", origin.device),
        ("threads", said(origin.threads)),
        ("commit of bcq", said(origin.commit)),
        ("versions", ", ".join(f"{name} {text}" for name, text in origin.versions.items())),
        *(
            (f"continued at update {each.step:,}", "; ".join(origin.differences(each.origin)))
            for each in config.continuations
        ),
    ]
    if (divergence := run.divergence()) is not None:
        told = f"update {divergence.get('step')}: {divergence.get('what')}"
        rows.append(("training ended early, a number was not finite", told))
    return section(
        number,
        "Training card",
        table((), rows, "The run"),
        table((), settings_of(asdict(config.algorithm)), "Settings of the algorithm"),
        table((), settings_of(asdict(config.schedule)), "Schedule"),
    )


def settings_of(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings by name, in words."""
    return [(name.replace("_", " "), said(value)) for name, value in settings.items()]


def said(value: object) -> str:
    """A setting in words."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
