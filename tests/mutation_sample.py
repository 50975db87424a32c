"""Breaks the source at random and counts how often a test fails: `make mutants`.

The mutants are drawn by a seed from all that `mutation_sites` finds, so no test can be written to
them in advance. What is done is kept in `.mutants`, from where a sample that was stopped goes on.
"""

import difflib
import math
import random
import resource
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import tyro

from mutation_runs import ROOT, UNKNOWN, Copy, append_line, in_turn, prepare, read_lines
from mutation_sites import Mutation, is_sound, mutations
from mutation_source import signatures_in

# Rooms of src/bcq.
STRATA = {
    "algorithms": ("algorithms/",),
    "data": ("data/",),
    "training": ("training/", "runs/"),
    "simulation": ("simulation/", "judging/", "export/", "serving/"),
    "collection": ("collection/",),
    "experiments": ("experiments/", "paper/"),
    "tabular": ("tabular/",),
    "command line": ("cli/", "system/", "__init__.py", "__main__.py"),
}
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
MOST_EQUIVALENT = 0.05  # of a sample
MEMORY = 8 * 2**30  # bytes a process: a mutant may ask for any number


def stratum_of(file: str) -> str:
    names = [name for name, parts in STRATA.items() if file.startswith(parts)]
    if len(names) != 1:
        raise ValueError(f"{file}: in {len(names)} strata; STRATA must name it once")
    return names[0]


def shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """The count in whole parts, as near as can be to proportional."""
    exact = {name: count * size / sum(sizes.values()) for name, size in sizes.items()}
    parts = {name: int(part) for name, part in exact.items()}
    by_rest = sorted(exact, key=lambda name: parts[name] - exact[name])
    for name in by_rest[: count - sum(parts.values())]:
        parts[name] += 1
    return parts


def draw(package: Mapping[str, str], seed: int, count: int) -> list[Mutation]:
    """A sample of the mutations of a package, given as the text of each file."""
    signatures = signatures_in(package.values())
    strata: dict[str, list[Mutation]] = {name: [] for name in STRATA}
    for file, text in sorted(package.items()):
        strata[stratum_of(file)] += mutations(file, text, signatures)
    parts = shares({name: len(found) for name, found in strata.items()}, count)
    drawn: list[Mutation] = []
    generator = random.Random(seed)
    for name, found in strata.items():
        generator.shuffle(found)
        sound = (mutation for mutation in found if is_sound(mutation, package[mutation.file]))
        drawn += [mutation for mutation, _ in zip(sound, range(parts[name]), strict=False)]
    generator.shuffle(drawn)  # what is done so far is a sample too
    return drawn


def interval(caught: int, total: int) -> tuple[float, float]:
    """Wilson's, of 95%."""
    if total == 0:
        return 0.0, 1.0
    z, share = 1.959964, caught / total
    middle = share + z**2 / (2 * total)
    reach = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return (middle - reach) / (1 + z**2 / total), (middle + reach) / (1 + z**2 / total)


def marked_equivalent() -> set[tuple[str, str, str]]:
    marks = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(mark["file"], mark["before"].strip(), mark["after"].strip()) for mark in marks}


def difference(mutation: Mutation, text: str) -> str:
    path = f"src/bcq/{mutation.file}"
    lines = (text.splitlines(keepends=True), mutation.apply(text).splitlines(keepends=True))
    return "".join(difflib.unified_diff(*lines, path, path, n=2))


def report(caught: Mapping[Mutation, bool], package: Mapping[str, str]) -> str:
    """The share caught, overall and by stratum, and the survivors as differences."""
    marks = marked_equivalent()
    equivalent = {one for one in caught if (one.file, *one.lines(package[one.file])) in marks}
    if len(equivalent) > MOST_EQUIVALENT * len(caught):
        sys.exit(f"{len(equivalent)} of {len(caught)} mutants marked equivalent: more than 5%")
    judged = {one: seen for one, seen in caught.items() if one not in equivalent}

    def line(name: str, seen: Sequence[bool]) -> str:
        low, high = interval(sum(seen), len(seen))
        share = f"{sum(seen) / len(seen):.1%}" if seen else ""
        counted = f"{sum(seen):4} of {len(seen):4}"
        return f"{name:14}{counted}  {share:>6}  95% interval {low:.1%} to {high:.1%}"

    survivors = [one for one, seen in judged.items() if not seen]
    return "\n".join(
        [
            *(difference(one, package[one.file]) for one in sorted(survivors, key=str)),
            *(
                line(name, [seen for one, seen in judged.items() if stratum_of(one.file) == name])
                for name in STRATA
            ),
            line("all", list(judged.values())),
            f"{len(equivalent)} more are equivalent",
        ]
    )


def require_passing(copy: Copy, noticed: set[str]) -> None:
    """Refuses a sample in which a test noticed a mutant that fails without one too."""
    tests = {test.split("[")[0]: UNKNOWN for test in noticed if "::" in test}
    outcome = copy.test({test.removeprefix("tests/"): seconds for test, seconds in tests.items()})
    if tests and outcome.failed:
        sys.exit(f"fails without a mutant: {outcome.failed}")


def main(seed: int = 1, count: int = 150, commit: str = "HEAD") -> None:
    """Draws mutants of a commit and runs the tests that exercise each."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # of addresses, Chromium takes more
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves no tests running
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", commit], capture_output=True, text=True, check=True
    ).stdout.strip()
    home = ROOT / ".mutants"
    copies, suite = prepare(home, commit)
    folder = home / commit
    sample = draw(suite.package, seed, count)
    results = folder / "results.jsonl"

    def failing(copy: Copy, mutation: Mutation) -> tuple[str, float]:
        tests = suite.against(mutation)
        if not tests:
            return "", 0.0
        copy.warm_up(home / "warm")
        path, text = copy.package / mutation.file, suite.package[mutation.file]
        path.write_text(mutation.apply(text))
        try:
            outcome = copy.test(tests)
        finally:
            path.write_text(text)
        return outcome.failed, outcome.seconds

    caught = {line["mutant"]: line["caught_by"] for line in read_lines(results)}
    left = [mutation for mutation in sample if str(mutation) not in caught]
    for mutation, (by, seconds) in in_turn(copies, left, failing, "mutants"):
        append_line(results, mutant=str(mutation), caught_by=by, seconds=round(seconds, 1))
        caught[str(mutation)] = by
    require_passing(copies[0], {caught[str(one)] for one in sample})
    said = report({one: bool(caught[str(one)]) for one in sample}, suite.package)
    said = f"{said}\ncommit {commit[:12]}, seed {seed}"
    (folder / f"seed{seed}-{count}.txt").write_text(said + "\n")
    print(said)


if __name__ == "__main__":
    tyro.cli(main)
