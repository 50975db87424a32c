"""The algorithms, one file each, by the name they have on the command line."""

from bcq.algorithms.bc import BC, BCConfig
from bcq.algorithms.bcq import BCQ, BCQConfig
from bcq.algorithms.ddpg import DDPG, DDPGConfig
from bcq.algorithms.discrete_bc import DiscreteBC, DiscreteBCConfig
from bcq.algorithms.discrete_bcq import DiscreteBCQ, DiscreteBCQConfig
from bcq.algorithms.discrete_dqn import DiscreteDQN, DiscreteDQNConfig
from bcq.algorithms.dqn import DQN, DQNConfig
from bcq.algorithms.ensemble import Ensemble, EnsembleConfig
from bcq.algorithms.learning import AlgorithmConfig
from bcq.algorithms.vae_bc import VAEBC, VAEBCConfig

CONTINUOUS: dict[str, type[AlgorithmConfig]] = {
    "bcq": BCQConfig,
    "ddpg": DDPGConfig,
    "dqn": DQNConfig,
    "bc": BCConfig,
    "vae-bc": VAEBCConfig,
    "ensemble": EnsembleConfig,
}
DISCRETE: dict[str, type[AlgorithmConfig]] = {
    "discrete-bcq": DiscreteBCQConfig,
    "discrete-dqn": DiscreteDQNConfig,
    "discrete-bc": DiscreteBCConfig,
}
ALGORITHMS = CONTINUOUS | DISCRETE


def name_of(config: AlgorithmConfig) -> str:
    """The name an algorithm's settings go by."""
    return next(name for name, kind in ALGORITHMS.items() if isinstance(config, kind))


__all__ = [
    "ALGORITHMS",
    "BC",
    "BCQ",
    "CONTINUOUS",
    "DDPG",
    "DISCRETE",
    "DQN",
    "VAEBC",
    "BCConfig",
    "BCQConfig",
    "DDPGConfig",
    "DQNConfig",
    "DiscreteBC",
    "DiscreteBCConfig",
    "DiscreteBCQ",
    "DiscreteBCQConfig",
    "DiscreteDQN",
    "DiscreteDQNConfig",
    "Ensemble",
    "EnsembleConfig",
    "VAEBCConfig",
    "name_of",
]
