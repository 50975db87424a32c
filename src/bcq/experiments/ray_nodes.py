"""Whether the nodes of a Ray cluster can do jobs, before they get any."""

import uuid
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bcq.system.errors import InputError
from bcq.system.files import Row, make_directory

ANSWER = 60.0  # seconds that a node has to answer


def examine(ray: Any, folder: Path, *, shared: bool = True) -> None:
    """Refuses a cluster with a node that lacks this software or does not see the folder."""
    make_directory(folder)
    token = folder.resolve() / f".seen-{uuid.uuid4().hex}"
    token.touch()
    try:
        look = ray.remote(num_cpus=0, max_retries=0)(probe())
        nodes = [node for node in ray.nodes() if node["Alive"]]
        near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        answers = {
            f"{node['NodeManagerHostname']}-{node['NodeID'][:6]}": look.options(
                scheduling_strategy=near(node["NodeID"], soft=False)
            ).remote(str(token))
            for node in nodes
        }
        for name, answer in answers.items():
            try:
                found = ray.get(answer, timeout=ANSWER)
                require_usable(name, found if shared else {**found, "sees": True}, folder)
            except ray.exceptions.RayError as error:
                words = " ".join(str(error).split())[:200]
                raise InputError(f"node {name} of the cluster does not answer: {words}") from error
    finally:
        token.unlink(missing_ok=True)


def probe() -> Callable[[str], Row]:
    """Looks at a node. Sent as code, since the node may not have bcq."""

    def look(token: str) -> Row:
        from importlib import import_module  # noqa: PLC0415 - on another machine
        from importlib.metadata import version  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        try:
            import_module("bcq")
            found = {name: version(name) for name in ("bcq", "jax")}
        except ImportError:
            found = {}
        return {"versions": found, "sees": Path(token).exists()}

    return look


def require_usable(name: str, found: Row, folder: Path) -> None:
    """Refuses a node that would give other numbers, or none."""
    if not found["versions"]:
        raise InputError(f"node {name} of the cluster has no bcq; install the same version there")
    for package, there in found["versions"].items():
        if there != version(package):
            raise InputError(
                f"node {name} of the cluster has {package} {there}, this machine has "
                f"{version(package)}; install the same version everywhere"
            )
    if not found["sees"]:
        raise InputError(
            f"node {name} of the cluster does not see {folder.resolve()}; all nodes must share "
            "the folder of the results under the same path, or use an object store",
            option="out",
        )
