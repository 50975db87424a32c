"""The shape of the package: imports point downwards."""

import ast
import re
from pathlib import Path

import pytest

import bcq

# A room may import only from rows below its own. Inside a room, files may import one another.
ROOMS = (
    ("bcq",),  # __init__ and __main__
    ("bcq.cli",),
    ("bcq.paper",),
    ("bcq.experiments", "bcq.serving"),
    ("bcq.collection", "bcq.export", "bcq.judging"),
    ("bcq.runs",),
    ("bcq.simulation",),
    ("bcq.training",),
    ("bcq.algorithms", "bcq.data", "bcq.tabular"),
    ("bcq.system",),
)


def room(module: str) -> str:
    return ".".join(module.split(".")[:2]) if module not in ("bcq", "bcq.__main__") else "bcq"


def row(module: str) -> int:
    return next(i for i, rooms in enumerate(ROOMS) if room(module) in rooms)


def modules() -> dict[str, Path]:
    root = Path(bcq.__file__).parent
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(path: Path) -> set[str]:
    """Modules of this package that a file imports, anywhere in it."""
    known, names = modules(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = inner & known.keys()
            names |= submodules or {node.module}
    return {name for name in names if name in known}


def test_imports_point_downwards() -> None:
    for module, path in modules().items():
        for imported in imports(path):
            inside = room(module) == room(imported)
            assert inside or row(module) < row(imported), f"{module} imports {imported}"


def test_algorithms_know_nothing_of_environments_files_or_arguments() -> None:
    forbidden = ("gymnasium", "h5py", "tyro", "tqdm", "argparse", "json", "pathlib")
    for module, path in modules().items():
        if module.startswith("bcq.algorithms.") or module in (
            "bcq.algorithms.networks",
            "bcq.algorithms.learning",
        ):
            text = path.read_text()
            assert not any(f"import {name}" in text or f"from {name}" in text for name in forbidden)


def test_messages_of_the_library_do_not_name_options_of_the_command_line() -> None:
    rooms = (
        *("bcq.runs", "bcq.training", "bcq.simulation", "bcq.collection", "bcq.judging"),
        *("bcq.data", "bcq.export", "bcq.serving", "bcq.system"),
    )
    for module, path in modules().items():
        texts = [
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        named = [text for text in texts if re.search(r"\s--[a-z]|^--[a-z-]+\s", text)]
        assert room(module) not in rooms or not named, f"{module}: {named}"


def test_nothing_reads_or_writes_pickles_or_evaluates_text() -> None:
    for path in modules().values():
        tree = ast.parse(path.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        text = path.read_text()
        assert not names & {"eval", "exec", "compile"}, path
        assert "pickle" not in text.replace("no pickle", ""), path


def test_every_public_name_is_there_when_it_is_asked_for() -> None:
    for name in bcq.__all__:
        assert getattr(bcq, name).__name__ == name
        assert name in dir(bcq)
    assert bcq.DiscreteDQNConfig.__module__.startswith("bcq.algorithms.")
    with pytest.raises(AttributeError, match="module 'bcq' has no attribute 'nothing'"):
        bcq.nothing  # noqa: B018
