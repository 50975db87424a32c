"""The algorithms, one file each, by the name they have on the command line."""

from bcq.algorithms.bcq import BCQ, BCQConfig
from bcq.learning import AlgorithmConfig

ALGORITHMS: dict[str, type[AlgorithmConfig]] = {"bcq": BCQConfig}


def name_of(config: AlgorithmConfig) -> str:
    """The name an algorithm's settings go by."""
    return next(name for name, kind in ALGORITHMS.items() if isinstance(config, kind))


__all__ = ["ALGORITHMS", "BCQ", "BCQConfig", "name_of"]
