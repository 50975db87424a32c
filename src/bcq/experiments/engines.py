"""Which engine runs the jobs: processes on this machine, or a Ray cluster."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bcq.experiments import ray_engine
from bcq.experiments.runner import Engine, LocalProcesses
from bcq.system.errors import InputError

EngineName = Literal["local", "ray"]


@dataclass(frozen=True)
class EngineChoice:
    """An engine and what it needs to know."""

    name: EngineName = "local"
    address: str | None = None  # of a Ray cluster; None: the one of this machine
    gpus: float = 0.0  # share of a GPU for each job; 0: one core
    store: str | None = None  # where results travel if the nodes share no folder

    def __post_init__(self) -> None:
        if self.name == "local" and (self.address or self.store or self.gpus):
            raise InputError(
                "address, store and gpus are settings of a Ray cluster", option="engine"
            )
        if not 0 <= self.gpus <= 1 and self.gpus != int(self.gpus):
            raise InputError(f"gpus: {self.gpus:g} is neither a share of a GPU nor a whole number")
        if self.gpus < 0:
            raise InputError(f"gpus: {self.gpus:g} is negative")

    def opened(self, folder: Path) -> AbstractContextManager[Engine]:
        """The engine, for jobs in a folder. It ends with the block."""
        if self.name == "local":
            return nullcontext(LocalProcesses())
        return ray_engine.connected(self.address, folder, gpus=self.gpus, store=self.store)
