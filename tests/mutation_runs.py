"""Which tests exercise a mutant, and whether one of them fails.

Line coverage misleads under compilation, where only the first trace is seen. So every test file is
run once on its own, with each function of the package made to note that it was called, in
subprocesses too; a mutant meets the files that called the function it is in.
"""

import ast
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import Queue
from typing import Any, TypeVar

from tqdm import tqdm

from mutation_sites import Mutation
from mutation_source import Function, Source, is_text, names_of_functions

ROOT = Path(__file__).parent.parent
PACKAGE = "src/bcq"
COPIES = 2
HANGS = 120  # seconds beyond four times the usual: a test kept from ending has noticed the mutant
BUDGET = 200.0  # seconds of test files that exercise a mutant without naming its module
UNKNOWN = 900.0  # seconds: no test file takes longer, on a busy machine
# Imported by the package and by pytest, as a plugin. What was compiled is forgotten before each
# test, so that what it calls is traced, and seen, again.
NOTES = """
import os, sys
from pathlib import Path
folder, seen, waiting = Path(__file__).with_name("notes"), set(), []
def write(line):
    waiting.append(line)
    try:
        with (folder / str(os.getpid())).open("a") as file:
            file.write("\\n" + "\\n".join(waiting) + "\\n")
        waiting.clear()
    except OSError:  # a test of the full disk: once there is room again
        pass
def test_of(words):
    return words.split("[")[0].split("/")[-1]
def note(function):
    test, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    line = (test_of(test) if phase == "(call)" else "") + "\\t" + function
    if line not in seen:
        seen.add(line)
        write(line)
def pytest_runtest_setup(item):
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
def pytest_runtest_logreport(report):
    write(f"{test_of(report.nodeid)}\\t{report.duration}\\ts")
"""
# Tests run in the order of the arguments: conftest.py would begin with the longest files.
ORDERED = """
import pytest
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    places = {argument: place for place, argument in enumerate(config.args)}
    def place(item):
        file, _, test = item.nodeid.partition("::")
        return places.get(f"{file}::{test.split('[')[0]}", places.get(file, len(places)))
    items.sort(key=place)
"""
Job = TypeVar("Job")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Outcome:
    """Of tests."""

    failed: str  # the test that did, or what else went wrong; nothing if all passed
    seconds: float


@dataclass
class Copy:
    """A copy of the project at a commit, to break."""

    folder: Path
    process: "subprocess.Popen[bytes] | None" = None  # of the tests under way

    @property
    def package(self) -> Path:
        return self.folder / "project" / PACKAGE

    @property
    def home(self) -> Path:
        """Where compiled code is kept."""
        return self.folder / "home"

    def unpack(self, commit: str) -> None:
        shutil.rmtree(self.folder / "project", ignore_errors=True)
        archive = subprocess.run(
            ["git", "-C", ROOT, "archive", commit], capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(self.folder / "project", filter="data")
        (self.package.parent / "ordered.py").write_text(ORDERED)

    def warm_up(self, warm: Path) -> None:
        """Forgets what was compiled, but for what `warm` holds."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(warm, self.home)

    def test(self, tests: Mapping[str, float], *options: str) -> Outcome:
        """Runs tests, or files of them, in turn, in one process, up to the first failure.

        With each goes how many seconds it usually takes.
        """
        shutil.rmtree(self.folder / "project" / ".hypothesis", ignore_errors=True)
        temporary, output = self.folder / "temporary", self.folder / "output.txt"
        temporary.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)  # a file that compiles nothing leaves nothing there
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "ordered"),
            *("--hypothesis-seed=0", f"--basetemp={temporary / 'pytest'}"),
            *("-o", f"faulthandler_timeout={HANGS + 4 * max(tests.values())}"),
            *("-o", "faulthandler_exit_on_timeout=true"),
            *options,
            *(f"tests/{test}" for test in tests),
        ]
        environment = os.environ | {
            "PYTHONPATH": str(self.package.parent),
            "PYTHONDONTWRITEBYTECODE": "1",  # two mutants of one second and size look alike
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home),
            "TMPDIR": str(temporary),
            "JAX_COMPILATION_CACHE_DIR": str(self.home / "bcq" / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        start = time.monotonic()
        with output.open("w") as log:
            process = self.process = subprocess.Popen(
                command,
                cwd=self.folder / "project",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            code = process.wait(HANGS + 4 * sum(tests.values()))
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            self.stop()
            process.wait()
            self.process = None
        said = output.read_text(errors="replace")
        names = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        if code in (4, 5) and not names:  # the tests did not run, though they can be imported
            raise RuntimeError(f"{' '.join(command)}\n{said[-3000:]}")
        failed = names[0] if names else f"exit {code}" if code else ""
        return Outcome(failed, time.monotonic() - start)

    def stop(self) -> None:
        """Ends the tests, or what they left running."""
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


def noting(text: str) -> str:
    """The same program, in which every function notes that it was called."""
    source, edits = Source(text), []
    names = names_of_functions(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            first = node.body[isinstance(node.body[0], ast.Expr) and is_text(node.body[0].value) :]
            if first:
                compound = hasattr(first[0], "body") or isinstance(first[0], ast.Match)
                decorators: list[ast.expr] = getattr(first[0], "decorator_list", [])
                line = decorators[0].lineno if decorators else first[0].lineno
                start = source.lines[line - 1] + first[0].col_offset
                after = "\n" + " " * first[0].col_offset if compound else "; "
                edits.append((start, f'__import__("notes").note("{names[node.lineno]}"){after}'))
    changed = source.bytes
    for start, note in sorted(edits, reverse=True):
        changed = changed[:start] + note.encode() + changed[start:]
    return changed.decode()


def in_turn(
    copies: list[Copy], jobs: Iterable[Job], do: Callable[[Copy, Job], Answer], what: str
) -> Iterator[tuple[Job, Answer]]:
    """Does every job in a copy that is free, as many at a time as there are copies."""
    free: Queue[Copy] = Queue()
    for copy in copies:
        free.put(copy)

    def in_a_copy(job: Job) -> Answer:
        copy = free.get()
        try:
            return do(copy, job)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        futures = {pool.submit(in_a_copy, job): job for job in jobs}
        try:
            for future in tqdm(as_completed(futures), what, len(futures)):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.stop()
            raise


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_line(path: Path, **values: Any) -> None:
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")


@dataclass(frozen=True)
class Suite:
    """The tests, as file.py::name: what each calls, and how long it takes.

    Under a file's own name stands what its fixtures call, which is for all of its tests.
    """

    called: Mapping[str, set[str]]  # functions by name
    seconds: Mapping[str, float]
    texts: Mapping[str, str]  # by file
    package: Mapping[str, str]  # the text of the package's files

    def against(self, mutation: Mutation) -> dict[str, float]:
        """The tests that call it themselves, quick ones first, then files whose fixtures do.

        Of files that do not name its module, only as many as `BUDGET` allows.
        """
        module = module_of(mutation.file)
        naming = {
            file
            for file, text in self.texts.items()
            if module in imported(text) or file == f"test_{Path(mutation.file).stem}.py"
        }
        wanted = {mutation.function}
        if not mutation.function:  # it is for those of the module and of its importers
            users = [text for text in self.package.values() if module in imported(text)]
            for text in (self.package[mutation.file], *users):
                wanted |= set(names_of_functions(ast.parse(text)).values())
        chosen = {test for test, functions in self.called.items() if wanted & functions}
        if not (mutation.function and chosen):
            chosen |= naming

        def place(test: str) -> tuple[bool, bool, float, str]:
            whole = "::" not in test
            return whole, whole and test not in naming, self.seconds[test], test

        order = sorted(chosen, key=place)
        others = accumulate(0 if file_of(test) in naming else self.seconds[test] for test in order)
        kept = [
            test
            for test, spent in zip(order, others, strict=True)
            if file_of(test) in naming or spent <= BUDGET
        ]
        return {test: self.seconds[test] for test in self.by_file(kept, naming)}

    def by_file(self, tests: list[str], naming: set[str]) -> list[str]:
        """Single tests first, those of a file together, or its fixtures would be made anew.

        Files that name the mutated module come first, then those whose tests are quick.
        """
        spent: dict[str, float] = defaultdict(float)
        for test in tests:
            spent[file_of(test)] += self.seconds[test] if "::" in test else 0.0
        single = [test for test in tests if "::" in test]
        whole = [test for test in tests if "::" not in test]

        def place(test: str) -> tuple[bool, float, str]:
            file = file_of(test)
            return file not in naming, spent[file], file

        return sorted(single, key=place) + whole


def file_of(test: str) -> str:
    return test.partition("::")[0]


def module_of(file: str) -> str:
    return f"bcq.{file}".removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imported(text: str) -> set[str]:
    """Modules that a file imports, and whatever else it imports from a module."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def texts_in(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.py"))
    }


def copies_in(folder: Path, commit: str) -> list[Copy]:
    """To break one mutant in each at the same time."""
    copies = [Copy(folder / f"copy{i}") for i in range(COPIES)]
    for copy in copies:
        copy.unpack(commit)
    return copies


def prepare(home: Path, commit: str) -> tuple[list[Copy], Suite]:
    """Copies of the project, and what is known of its tests: from `home`, where it is there.

    What the tests compile on the way is kept in `home/warm`. It is found again by what it
    computes, so a mutant's code is never taken from there.
    """
    copies = copies_in(home / commit, commit)
    package = texts_in(copies[0].package)
    files = texts_in(copies[0].folder / "project" / "tests")
    tests = {file: text for file, text in files.items() if file.startswith("test_")}
    tests.pop("test_mutations.py", None)  # reads the package, but does not run it
    marks = {test: mark(test, files) for test in tests}

    def noted(copy: Copy, test: str) -> dict[str, Any]:
        notes = copy.package.parent / "notes"
        shutil.rmtree(notes, ignore_errors=True)
        notes.mkdir()
        outcome = copy.test({test: UNKNOWN}, "-p", "notes")
        if outcome.failed:
            said = (copy.folder / "output.txt").read_text()[-3000:]
            raise RuntimeError(f"fails without a mutant: {outcome.failed}\n{said}")
        lines = "".join(file.read_text() for file in notes.iterdir()).splitlines()
        return {"test": test, **calls_in(test, lines), "seconds": outcome.seconds}

    known = {line["mark"]: line for line in read_lines(home / "calls.jsonl")}
    new = [test for test in tests if marks[test] not in known]
    if new:
        for copy in copies:
            (copy.package.parent / "notes.py").write_text(NOTES)
            for file, text in package.items():
                (copy.package / file).write_text(noting(text))
            if (home / "warm").exists():
                copy.warm_up(home / "warm")
        for test, calls in in_turn(copies, new, noted, "calls"):
            known[marks[test]] = {"mark": marks[test], **calls}
            append_line(home / "calls.jsonl", **known[marks[test]])
            for copy in copies:
                shutil.copytree(copy.home, home / "warm", dirs_exist_ok=True)
        for copy in copies:
            copy.unpack(commit)
    called: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    for test in tests:
        calls = known[marks[test]]
        called |= {name: set(functions) for name, functions in calls["called"].items()}
        seconds |= {**calls["durations"], test: calls["seconds"]}
    return copies, Suite(called, seconds, tests, package)


def calls_in(file: str, lines: Iterable[str]) -> dict[str, Any]:
    """What the notes on a test file say: who called what, and how long each test took."""
    called: dict[str, set[str]] = {file: set()}
    durations: dict[str, float] = defaultdict(float)
    for line in lines:
        test, _, said = line.partition("\t")
        if said.endswith("\ts"):
            durations[test] += float(said.removesuffix("\ts"))
        elif said:
            called.setdefault(test or file, set()).add(said)
    return {
        "called": {test: sorted(functions) for test, functions in called.items()},
        "durations": durations,
    }


def mark(test: str, files: Mapping[str, str]) -> str:
    """Stands for what decides which functions a test file calls: itself and what it imports."""
    others = {file for file in files if not file.startswith(("test_", "mutation_", "mutants"))}
    others |= {file for name in imported(files[test]) if (file := f"{name}.py") in files}
    texts = [files[file] for file in sorted({test, *others})]
    return hashlib.sha256("\0".join([test, *texts]).encode()).hexdigest()[:16]
