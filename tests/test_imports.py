"""The shape of the package: imports point downwards."""

import ast
from pathlib import Path

import bcq

# A module may import only from rows below its own.
LAYERS = (
    ("bcq.__main__",),
    ("bcq.cli",),
    ("bcq.paper.reproduce",),
    ("bcq.paper",),
    ("bcq", "bcq.paper.demo", "bcq.data.inspection", "bcq.tabular.walk"),
    ("bcq.collection.recipes",),
    ("bcq.collection.experts", "bcq.judging.meter"),
    ("bcq.collection.behaviour", "bcq.runs.plots"),
    ("bcq.training.loop",),
    ("bcq.simulation.values",),
    ("bcq.simulation.evaluation", "bcq.runs.directory"),
    ("bcq.algorithms",),
    ("bcq.collection.buffer", "bcq.training.policy"),
    (
        "bcq.data.doctor",
        "bcq.data.formats",
        "bcq.algorithms.networks",
        "bcq.algorithms.learning",
        "bcq.simulation.rollouts",
    ),
    ("bcq.simulation.environments",),
    ("bcq.data.dataset", "bcq.system.files", "bcq.tabular"),
    ("bcq.system.interruption",),
    ("bcq.system.errors", "bcq.system.progress", "bcq.system.seeds"),
)
# Inside these, files may import one another; a file knows what its folder is for.
FOLDERS = ("bcq.algorithms", "bcq.paper", "bcq.data.formats", "bcq.tabular")


def layer(module: str) -> int:
    for folder in FOLDERS:
        if module.startswith(folder + "."):
            module = folder
    return next(i for i, names in enumerate(LAYERS) if module in names)


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
            same_folder = layer(module) == layer(imported) and any(
                module.startswith(folder) and imported.startswith(folder) for folder in FOLDERS
            )
            assert layer(module) < layer(imported) or same_folder, f"{module} imports {imported}"


def test_algorithms_know_nothing_of_environments_files_or_arguments() -> None:
    forbidden = ("gymnasium", "h5py", "tyro", "tqdm", "argparse", "json", "pathlib")
    for module, path in modules().items():
        if module.startswith("bcq.algorithms.") or module in (
            "bcq.algorithms.networks",
            "bcq.algorithms.learning",
        ):
            text = path.read_text()
            assert not any(f"import {name}" in text or f"from {name}" in text for name in forbidden)


def test_nothing_reads_or_writes_pickles_or_evaluates_text() -> None:
    for path in modules().values():
        tree = ast.parse(path.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        text = path.read_text()
        assert not names & {"eval", "exec", "compile"}, path
        assert "pickle" not in text.replace("no pickle", ""), path
