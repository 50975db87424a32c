"""Section 4.1 and Figure 6: the theorems on random MDPs, and the kernel counterexample."""

from bcq.experiments.jobs import Job
from bcq.experiments.kinds import Theory
from bcq.paper.claims import Claim, Counterexample, Proved
from bcq.paper.presets import Preset
from bcq.tabular.illustrations import BCQL_EXACT, KERNEL_EXACT
from bcq.tabular.theorems import STATEMENTS


def jobs(preset: Preset) -> list[tuple[int, Job]]:
    """One job, the same for every preset."""
    del preset  # it takes seconds
    return [(0, Theory())]


CLAIMS: tuple[Claim, ...] = (
    *(
        Proved(
            statement.name,
            f"{statement.says[0].upper()}{statement.says[1:]}.",
            f"no violation above {statement.tolerance:g} in random MDPs",
            statement.tolerance,
        )
        for statement in STATEMENTS
    ),
    Counterexample(
        "Supplement C, Figure 6",
        "KBRL fails to learn the optimal policy when provided with state-action pairs from the "
        "optimal policy",
        "kernel-based RL stays in s1 for nothing, with the values of Eq. 21 within "
        f"{KERNEL_EXACT:g} at three discounts; BCQL is optimal, with the true values of the "
        f"batch's pairs within {BCQL_EXACT:g}",
    ),
)
