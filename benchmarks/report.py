"""benchmarks/results.json as the tables and the chart of docs/performance.md.

python benchmarks/report.py
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from results import load, spread
from sizes import LARGE, allowed
from updates import MULTIPLY_ADDS

from bcq.system.colours import COLOURS
from bcq.system.files import write_text

DOCS = Path(__file__).parent.parent / "docs"
NAMES = {
    "bcq": "**this project**",
    "textbook": "textbook PyTorch",
    "textbook compiled": "textbook under torch.compile",
    "d3rlpy": "d3rlpy, n = 10",
    "d3rlpy n=100": "d3rlpy, n = 100, its default",
    "d3rlpy defaults": "d3rlpy, every default",
    "tianshou": "tianshou",
}
OTHERS = {"ddpg": "d3rlpy ddpg", "bc": "d3rlpy bc"}  # ours and the peer's
Speeds = dict[str, list[float]]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rate(speeds: list[float]) -> str:
    """The median, with three figures or all before the point."""
    median = float(np.median(speeds))
    return f"{median:.0f}/s" if median >= 100 else f"{median:.3g}/s"


def ratios(speeds: Speeds, ours: str, theirs: str) -> list[float]:
    """Within rounds."""
    return [a / b for a, b in zip(speeds[ours], speeds[theirs], strict=True)]


def shares(speeds: Speeds, yardstick: str) -> list[float]:
    """Of the matrix-multiply limit, at Hopper's sizes."""
    return [ratio * MULTIPLY_ADDS["bcq"] for ratio in ratios(speeds, "bcq", yardstick)]


def updates(cases: list[dict[str, Any]]) -> str:
    """A table for each environment: speeds and ratios."""
    parts = []
    for env in dict.fromkeys(case["env"] for case in cases):
        by_cores = {case["cores"]: case["speeds"] for case in cases if case["env"] == env}
        head = [env, *(f"{cores} core{'s' * (cores != '1')}" for cores in by_cores)]
        rows = [
            [
                words,
                *(
                    rate(speeds[name])
                    + (f"; {spread(ratios(speeds, 'bcq', name))}" if name != "bcq" else "")
                    for speeds in by_cores.values()
                ),
            ]
            for name, words in NAMES.items()
        ]
        for ours, theirs in OTHERS.items():
            rows.append(
                [
                    f"**this project**, {ours.upper()}",
                    *(rate(speeds[ours]) for speeds in by_cores.values()),
                ]
            )
            rows.append(
                [
                    f"d3rlpy, {ours.upper()}",
                    *(
                        f"{np.median(speeds[theirs]):.3g}/s; {spread(ratios(speeds, ours, theirs))}"
                        for speeds in by_cores.values()
                    ),
                ]
            )
        parts.append(table(head, rows))
    return "\n\n".join(parts)


def limit(cases: list[dict[str, Any]]) -> str:
    """BCQ's share of what matrix products allow."""
    rows = [
        [
            case["cores"],
            f"{np.median(case['speeds']['products']) / 1e9:.1f} G",
            f"{np.median(case['speeds']['torch products']) / 1e9:.1f} G",
            spread(shares(case["speeds"], "products"), "{:.0%}"),
            spread(shares(case["speeds"], "torch products"), "{:.0%}"),
        ]
        for case in cases
        if case["env"] == "Hopper-v5"
    ]
    head = ["cores", "XLA, multiply-adds/s", "PyTorch", "share of XLA's", "share of PyTorch's"]
    return table(head, rows)


def where(profiles: dict[str, Any]) -> str:
    """Milliseconds by kind of operation."""
    kinds = list(dict.fromkeys(k for p in profiles.values() for k in p["milliseconds"]))
    kinds.sort(key=lambda kind: -profiles["1"]["milliseconds"].get(kind, 0.0))
    head = ["milliseconds per update", *(f"{cores} thread(s)" for cores in profiles)]
    rows = [
        [kind, *(f"{p['milliseconds'].get(kind, 0.0):.2f}" for p in profiles.values())]
        for kind in kinds
    ]
    rows.append(["**sum**", *(f"{sum(p['milliseconds'].values()):.2f}" for p in profiles.values())])
    return table(head, rows)


def sizes(profiles: dict[str, Any]) -> str:
    """Speed of an update's own products against the large one, and what they allow together."""
    head = ["product", "count per update", *(f"{cores} thread(s)" for cores in profiles)]
    rows = [
        [
            f"{form}, {batch:,} rows, {inputs} to {outputs}",
            str(count),
            *(f"{p['rates'][i]:.0%}" for p in profiles.values()),
        ]
        for i, (form, batch, inputs, outputs, count) in enumerate(LARGE)
    ]
    together = [f"{allowed(p['rates']):.0%}" for p in profiles.values()]
    return table(
        head, [*rows, ["**all products, if everything else took no time**", "", *together]]
    )


def growth(measured: dict[str, Any]) -> str:
    """Tables of what changes with size."""
    rows = [
        [
            f"{case['rows']:,}",
            f"{case['updates_per_second']:.3g}",
            f"{case['peak_gigabytes']:.2f} GB",
            f"{case['seconds_in_all']:.0f} s",
        ]
        for case in measured["rows"]
    ]
    head = ["rows", "updates/s", "peak memory", "`bcq train`, 500 updates, total time"]
    parts = [table(head, rows)]
    for name in ("n", "minibatch", "seeds at once"):
        cells = [f"{np.median(speeds):.3g}" for speeds in measured[name].values()]
        each = "updates/s of each" if name == "seeds at once" else "updates/s"
        parts.append(table([name, *measured[name]], [[each, *cells]]))
    return "\n\n".join(parts)


def waiting(measured: dict[str, Any]) -> str:
    """Seconds, and per step where steps differ."""
    plain = {
        "import_bcq": "`import bcq`",
        "help_bcq": "`bcq --help`",
        "import_torch": "`import torch`",
        "import_d3rlpy": "`import d3rlpy`",
        "warm_up_bcq": "from start to 20 updates, this project",
        "warm_up_textbook": "from start to 20 updates, textbook",
        "warm_up_textbook_compiled": "from start to 20 updates, textbook under torch.compile",
        "load_ours": "load 1M transitions, this project, from HDF5",
        "load_ours_from_minari": "load 1M transitions, this project, from a Minari data set",
        "load_minari": "load 1M transitions, the minari library, from a Minari data set",
        "load_d3rlpy": "load 1M transitions, d3rlpy, from its own file",
        "collect_100k": "collect 100,000 imperfect demonstrations",
    }
    rows = [[words, spread(measured[name]) + " s"] for name, words in plain.items()]
    steps = seconds_a_step(measured)
    for name, words in (("ours", "this project"), ("textbook", "textbook")):
        rows.append(
            [
                f"one step of an evaluation of 10 Hopper episodes, {words}",
                f"{spread([1e6 * step for step in steps[name]], '{:.0f}')} µs, "
                f"{spread(ratios(steps, name, 'bare'))} times bare stepping",
            ]
        )
    for name, words in (
        ("beat_the_batch", "from start to a policy above the batch's average, `bcq train`"),
        ("beat_the_batch_textbook", "from start to a policy above the batch's average, textbook"),
    ):
        seconds, count = measured[name][0][:2]
        rows.append([words, f"{seconds:.0f} s ({count:,} updates)"])
    return table(["", "median (quartiles)"], rows)


def seconds_a_step(waits: dict[str, Any]) -> Speeds:
    """Of evaluations, whose lengths differ, and of stepping alone."""
    evaluations = {
        name: [seconds / count for seconds, count in waits[f"evaluate_{name}"]]
        for name in ("ours", "textbook")
    }
    return {**evaluations, "bare": waits["bare_stepping"]}


Bar = tuple[str, list[float], str, bool]  # what, measured in each round, the bar, whether it holds


def at_least(what: str, values: list[float], least: float) -> Bar:
    """A promise kept where the median is that large."""
    return what, values, f"at least {least:g}", float(np.median(values)) >= least


def at_most(what: str, values: list[float], most: float) -> Bar:
    """A promise kept where the median is that small."""
    return what, values, f"at most {most:g}", float(np.median(values)) <= most


def bars(results: dict[str, Any]) -> Iterator[Bar]:
    """Each promise."""
    cases = {
        case["cores"]: case["speeds"]
        for case in results["updates"]["measured"]
        if case["env"] == "Hopper-v5"
    }
    for theirs, least in (("textbook", 1.6), ("d3rlpy", 2.0), ("d3rlpy n=100", 10.0)):
        values = ratios(cases["2"], "bcq", theirs)
        yield at_least(f"updates per second: ours / {NAMES[theirs]}, two threads", values, least)
    for cores, least in (("1", 0.9), ("2", 0.85)):
        what = f"share of the machine's limit, {cores} thread(s)"
        yield at_least(what, shares(cases[cores], "products"), least)
    if "growth" in results:
        memory = results["growth"]["measured"]["rows"][-1]
        what = f"peak memory for {memory['rows']:,} rows, GB"
        yield at_most(what, [memory["peak_gigabytes"]], 3)
    if "waiting" in results:
        yield from bars_of_waiting(results["waiting"]["measured"])


def bars_of_waiting(waits: dict[str, Any]) -> Iterator[Bar]:
    """Evaluating and loading."""
    steps = seconds_a_step(waits)
    yield at_most(
        "evaluation: time per step / bare stepping of the environment",
        ratios(steps, "ours", "bare"),
        2,
    )
    yield at_least(
        "evaluation: textbook's time per step / ours", ratios(steps, "textbook", "ours"), 1.5
    )
    for theirs, what in (
        ("minari", "minari library's time from its Minari data set"),
        ("d3rlpy", "d3rlpy's time from its own file"),
    ):
        yield at_least(
            f"loading 1M transitions: {what} / ours from HDF5",
            ratios(waits, f"load_{theirs}", "load_ours"),
            1,
        )


def summary(results: dict[str, Any]) -> str:
    """What was measured, without the promises."""
    rows = [[what, spread(values)] for what, values, _, _ in bars(results)]
    return table(["", "median (quartiles)"], rows)


def verdicts(results: dict[str, Any]) -> str:
    """The promises as a table."""
    rows = [
        [what, spread(values), bar, "yes" if holds else "**no**"]
        for what, values, bar, holds in bars(results)
    ]
    return table(["", "measured", "bar", "met"], rows)


def chart(results: dict[str, Any], path: Path) -> None:
    """Speeds at Hopper's sizes on two threads, and how they change with the batch's size."""
    case = next(
        case
        for case in results["updates"]["measured"]
        if case["env"] == "Hopper-v5" and case["cores"] == "2"
    )
    figure = Figure(figsize=(7.2, 3.0), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    names = list(NAMES)[::-1]
    medians = [float(np.median(case["speeds"][name])) for name in names]
    colours = [COLOURS["bcq"] if name == "bcq" else "#999999" for name in names]
    left.barh([NAMES[name].replace("*", "") for name in names], medians, color=colours)
    for row, value in enumerate(medians):
        left.text(value, row, f" {value:.3g}", va="center", fontsize=8)
    left.set_xlabel("updates of BCQ per second, two threads")
    left.margins(x=0.15)
    rows = results["growth"]["measured"]["rows"]
    right.semilogx(
        [case["rows"] for case in rows],
        [case["updates_per_second"] for case in rows],
        "o-",
        color=COLOURS["bcq"],
    )
    right.set_ylim(bottom=0)
    right.set_xlabel("rows in the batch")
    right.set_ylabel("updates per second")
    for axes in (left, right):
        axes.tick_params(labelsize=8)
    figure.savefig(path)


PARTS: dict[str, tuple[str, Callable[[Any], str]]] = {  # of the page, and what each is made from
    "updates": ("updates", updates),
    "limit": ("updates", limit),
    "where": ("where", where),
    "sizes": ("where", sizes),
    "growth": ("growth", growth),
    "waiting": ("waiting", waiting),
}


def made_from(results: dict[str, Any]) -> str:
    """Commits and machines."""
    return "\n".join(
        f"- {name}: commit {section['commit'][:7]}, {section['machine']}"
        for name, section in results.items()
    )


def main() -> None:
    """Rewrites the measured parts of the page; the words between them stay."""
    results, page = load(), DOCS / "performance.md"
    parts = {"summary": summary(results), "made": made_from(results)}
    for name, (section, make) in PARTS.items():
        known = section in results
        parts[name] = make(results[section]["measured"]) if known else "Not measured yet."
    text = page.read_text()
    for name, measured in parts.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise SystemExit(f"{page}: has no place for {name}")
        text = f"{before}{begin}\n{measured}\n{end}{after}"
    write_text(page, text)
    chart(results, DOCS / "performance.png")
    print(verdicts(results))


if __name__ == "__main__":
    main()
