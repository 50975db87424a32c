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
NOTES = """
import os
from pathlib import Path
folder, seen, waiting = Path(__file__).with_name("notes"), set(), []
def note(function):
    if function not in seen:
        seen.add(function)
        waiting.append(function)
        try:
            with (folder / str(os.getpid())).open("a") as file:
                file.write("\\n" + "\\n".join(waiting) + "\\n")
            waiting.clear()
        except OSError:  # a test of the full disk: once there is room again
            pass
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

    def warm_up(self, warm: Path) -> None:
        """Forgets what was compiled, but for what `warm` holds."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(warm, self.home)

    def test(self, files: Mapping[str, float]) -> Outcome:
        """Runs test files in turn, in one process, up to the first failure.

        With each goes how many seconds it usually takes.
        """
        shutil.rmtree(self.folder / "project" / ".hypothesis", ignore_errors=True)
        temporary, output = self.folder / "temporary", self.folder / "output.txt"
        temporary.mkdir(exist_ok=True)
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider"),
            *("--hypothesis-seed=0", f"--basetemp={temporary / 'pytest'}"),
            *("-o", f"faulthandler_timeout={HANGS + 4 * max(files.values())}"),
            *("-o", "faulthandler_exit_on_timeout=true"),
            *(f"tests/{file}" for file in files),
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
            code = process.wait(HANGS + 4 * sum(files.values()))
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            self.stop()
            process.wait()
            self.process = None
        said = output.read_text(errors="replace")
        if code in (4, 5):  # the tests did not run
            raise RuntimeError(f"{' '.join(command)}\n{said[-3000:]}")
        names = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
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
    """The test files: what each calls, imports, and how long it takes."""

    called: Mapping[str, set[str]]  # by test file; functions by name
    seconds: Mapping[str, float]
    texts: Mapping[str, str]
    package: Mapping[str, str]  # the text of the package's files

    def against(self, mutation: Mutation) -> dict[str, float]:
        """The test files that exercise it: those that name its module, then others while cheap."""
        module = module_of(mutation.file)
        naming = {
            test
            for test, text in self.texts.items()
            if module in imported(text) or test == f"test_{Path(mutation.file).stem}.py"
        }
        wanted = {mutation.function}
        if not mutation.function:  # it is for those of the module and of its importers
            users = [text for text in self.package.values() if module in imported(text)]
            for text in (self.package[mutation.file], *users):
                wanted |= set(names_of_functions(ast.parse(text)).values())
        chosen = {test for test, functions in self.called.items() if wanted & functions}
        if not (mutation.function and chosen):
            chosen |= naming
        order = sorted(chosen, key=lambda test: (test not in naming, self.seconds[test]))
        others = accumulate(0 if test in naming else self.seconds[test] for test in order)
        return {
            test: self.seconds[test]
            for test, spent in zip(order, others, strict=True)
            if test in naming or spent <= BUDGET
        }


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


def prepare(home: Path, commit: str) -> tuple[list[Copy], Suite]:
    """Copies of the project, and what is known of its tests: from `home`, where it is there.

    What the tests compile on the way is kept in `home/warm`. It is found again by what it
    computes, so a mutant's code is never taken from there.
    """
    copies = [Copy(home / commit / f"copy{i}") for i in range(COPIES)]
    for copy in copies:
        copy.unpack(commit)
    package = texts_in(copies[0].package)
    files = texts_in(copies[0].folder / "project" / "tests")
    tests = {file: text for file, text in files.items() if file.startswith("test_")}
    tests.pop("test_mutations.py", None)  # reads the package, but does not run it
    marks = {test: mark(test, files) for test in tests}

    def noted(copy: Copy, test: str) -> tuple[list[str], float]:
        notes = copy.package.parent / "notes"
        shutil.rmtree(notes, ignore_errors=True)
        notes.mkdir()
        outcome = copy.test({test: UNKNOWN})
        if outcome.failed:
            said = (copy.folder / "output.txt").read_text()[-3000:]
            raise RuntimeError(f"fails without a mutant: {outcome.failed}\n{said}")
        functions = {name for file in notes.iterdir() for name in file.read_text().split()}
        return sorted(functions), outcome.seconds

    known = {line["mark"]: line for line in read_lines(home / "called.jsonl")}
    new = [test for test in tests if marks[test] not in known]
    if new:
        for copy in copies:
            (copy.package.parent / "notes.py").write_text(NOTES)
            for file, text in package.items():
                (copy.package / file).write_text(noting(text))
            if (home / "warm").exists():
                copy.warm_up(home / "warm")
        for test, (functions, took) in in_turn(copies, new, noted, "called"):
            line = {"mark": marks[test], "test": test, "seconds": took, "functions": functions}
            append_line(home / "called.jsonl", **line)
            known[marks[test]] = line
            for copy in copies:
                shutil.copytree(copy.home, home / "warm", dirs_exist_ok=True)
        for copy in copies:
            copy.unpack(commit)
    lines = {test: known[marks[test]] for test in tests}
    called = {test: set(line["functions"]) for test, line in lines.items()}
    seconds = {test: line["seconds"] for test, line in lines.items()}
    return copies, Suite(called, seconds, tests, package)


def mark(test: str, files: Mapping[str, str]) -> str:
    """Stands for what decides which functions a test file calls: itself and what it imports."""
    others = {file for file in files if not file.startswith(("test_", "mutation_", "mutants"))}
    others |= {file for name in imported(files[test]) if (file := f"{name}.py") in files}
    texts = [files[file] for file in sorted({test, *others})]
    return hashlib.sha256("\0".join([test, *texts]).encode()).hexdigest()[:16]
