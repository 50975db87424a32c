"""A Ray cluster on this machine, changed by lines of standard input: `add [PATH]`, `remove ID`.

In a process of its own: Ray forks, which is not safe where JAX is used.
"""

import os
import signal
import subprocess
import sys
from typing import Any

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # every address is 127.0.0.1


class ClusterProcess:
    """The process, as a test sees it. The head does no work."""

    def __init__(self, **environment: str):
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **LOOPBACK, **environment},
        )
        self.address = self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:  # Ray prints, too
            if line.startswith("answer "):
                return line.split()[1]
        raise AssertionError("the cluster has ended")

    def ask(self, *words: str) -> str:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)
        return self.answer()

    def add(self, *path: str) -> str:
        """A node with one core; the result is its id."""
        return self.ask("add", *path)

    def remove(self, node: str) -> None:
        """Kills a node without grace."""
        self.ask("remove", node)

    def shutdown(self) -> None:
        self.process.communicate(timeout=60)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for `ray start &`
    from bcq.experiments.ray_engine import imported  # noqa: PLC0415 - an extra

    imported()
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    print("answer", cluster.address, flush=True)
    nodes: dict[str, Any] = {}
    for line in sys.stdin:
        order, *words = line.split()
        if order == "add":
            node = cluster.add_node(
                num_cpus=1, env_vars={"PYTHONPATH": words[0]} if words else None
            )
            nodes[node.node_id] = node
            print("answer", node.node_id, flush=True)
        else:
            cluster.remove_node(nodes.pop(words[0]), allow_graceful=False)
            print("answer", "removed", flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
