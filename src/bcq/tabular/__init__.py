"""The theory of the paper on finite MDPs, without networks (Section 4.1, supplement A and C)."""

from bcq.tabular.batch import (
    TabularBatch,
    batch_constrained_policy,
    batch_mdp,
    batch_of,
    coherent_part,
    collect,
    complete_batch,
    is_batch_constrained,
    is_coherent,
    offending_tuples,
)
from bcq.tabular.extrapolation import (
    extrapolation_error,
    extrapolation_error_by_recursion,
    total_extrapolation_error,
)
from bcq.tabular.kernel import KernelBasedRL, KernelBatch, embed
from bcq.tabular.mdp import (
    FiniteMDP,
    deterministic_policy,
    evaluate_policy,
    greedy,
    grid_world,
    random_mdp,
    reachable,
    toy_mdp,
    value_iteration,
    visitation,
)
from bcq.tabular.q_learning import (
    bcql,
    bcql_fixed_point,
    greedy_in_batch,
    q_learning,
    q_learning_fixed_point,
)

__all__ = [
    "FiniteMDP",
    "KernelBasedRL",
    "KernelBatch",
    "TabularBatch",
    "batch_constrained_policy",
    "batch_mdp",
    "batch_of",
    "bcql",
    "bcql_fixed_point",
    "coherent_part",
    "collect",
    "complete_batch",
    "deterministic_policy",
    "embed",
    "evaluate_policy",
    "extrapolation_error",
    "extrapolation_error_by_recursion",
    "greedy",
    "greedy_in_batch",
    "grid_world",
    "is_batch_constrained",
    "is_coherent",
    "offending_tuples",
    "q_learning",
    "q_learning_fixed_point",
    "random_mdp",
    "reachable",
    "total_extrapolation_error",
    "toy_mdp",
    "value_iteration",
    "visitation",
]
