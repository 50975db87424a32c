"""How long and how often: the paper's own scale, and three that fit a working day."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from bcq.behaviour import BehaviourSchedule
from bcq.experiments.jobs import Batch, Behaviour, Experts, Training
from bcq.learning import AlgorithmConfig
from bcq.training import Schedule

MUJOCO = ("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5")
TOYS = ("Pendulum-v1", "Reacher-v5")  # of supplement D.3
ExperimentName = Literal[
    "theory", "extrapolation", "results", "values", "perturbation", "uncertainty", "random"
]
PresetName = Literal["smoke", "quick", "converged", "paper"]
RECIPES = ("final-buffer", "concurrent", "imitation", "imperfect")
PERTURBATIONS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)  # Phi, in half-widths of the action range


@dataclass(frozen=True)
class Length:
    """Of a training run."""

    updates: int
    evaluate_every: int = 5_000
    true_value_every: int = 50_000


@dataclass(frozen=True)
class Preset:
    """What decides the cost of the paper's experiments."""

    says: str
    trials: int
    transitions: Mapping[str, int]  # by recipe
    lengths: Mapping[str, Length]  # by recipe; for random behaviour by environment
    environments: tuple[str, ...] = MUJOCO
    toys: tuple[str, ...] = TOYS
    evaluate_behaviour_every: int = 5_000
    evaluate_episodes: int = 10
    agents: int = 0  # that the experts are chosen from; 0: the bundled experts
    perturbations: tuple[float, ...] = PERTURBATIONS
    members: tuple[int, ...] = (4, 10)
    experiments: tuple[ExperimentName, ...] = get_args(ExperimentName)

    def batch(self, recipe: str, env: str, trial: int) -> Batch:
        """Trial i learns from behaviour or expert i."""
        source: Behaviour | Experts | None = None
        if recipe in ("final-buffer", "concurrent"):
            source = self.behaviour(recipe, env, trial)
        elif recipe != "random" and self.agents:
            source = Experts(
                tuple(self.behaviour("concurrent", env, seed) for seed in range(self.agents)),
                keep=self.trials,
            )
        return Batch(recipe, env, self.transitions[recipe], trial, source)

    def behaviour(self, recipe: str, env: str, trial: int) -> Behaviour:
        """Noise 0.5 for the final buffer; 0.1 for the concurrent task and for experts."""
        return Behaviour(
            BehaviourSchedule(
                env=env,
                steps=self.transitions[recipe],
                seed=trial,
                noise=0.5 if recipe == "final-buffer" else 0.1,
                evaluate_every=self.evaluate_behaviour_every,
                evaluate_episodes=self.evaluate_episodes,
            )
        )

    def training(self, config: AlgorithmConfig, recipe: str, env: str, trial: int) -> Training:
        """An algorithm on the batch of a trial, with the trial's seed."""
        length = self.lengths[env if recipe == "random" else recipe]
        schedule = Schedule(
            steps=length.updates,
            seed=trial,
            env=env,
            evaluate_every=length.evaluate_every,
            evaluate_episodes=self.evaluate_episodes,
            checkpoint_every=length.evaluate_every,
            true_value_every=length.true_value_every if hasattr(config, "discount") else None,
            concurrent=recipe == "concurrent",
        )
        return Training(config, schedule, self.batch(recipe, env, trial))


def alike(length: Length) -> dict[str, Length]:
    """The same for every task."""
    return dict.fromkeys((*RECIPES, *TOYS), length)


PRESETS: dict[PresetName, Preset] = {
    "smoke": Preset(
        says="a few minutes: every part once, far too short to learn anything",
        trials=1,
        transitions={
            "final-buffer": 400,
            "concurrent": 400,
            "imitation": 400,
            "imperfect": 400,
            "random": 400,
        },
        lengths=alike(Length(100, 100, 100)),
        environments=("Hopper-v5",),
        toys=("Pendulum-v1",),
        evaluate_behaviour_every=200,
        evaluate_episodes=2,
        perturbations=(0.05, 2.0),
        members=(2, 3),
    ),
    "quick": Preset(
        says="about an hour and a half on two cores: Hopper and the toy tasks, two trials, "
        "thousands of updates instead of a million; too short to judge how near BCQ's values are "
        "to the truth",
        trials=2,
        transitions={
            "final-buffer": 20_000,
            "concurrent": 7_500,
            "imitation": 100_000,
            "imperfect": 100_000,
            "random": 5_000,
        },
        lengths={
            "final-buffer": Length(5_000, 500, 2_500),
            "concurrent": Length(7_500, 500, 2_500),
            "imitation": Length(5_000, 500, 2_500),
            "imperfect": Length(12_000, 1_000, 6_000),
            "Pendulum-v1": Length(5_000, 500, 2_500),
            "Reacher-v5": Length(5_000, 500, 2_500),
        },
        environments=("Hopper-v5",),
        evaluate_behaviour_every=1_000,
        perturbations=(0.0, 0.05, 0.5, 2.0),
    ),
    "converged": Preset(
        says="about an hour on two cores: values on Hopper's imperfect demonstrations alone, at "
        "60,000 updates, when a slow target has let them rise to 95%",
        trials=2,
        transitions={"imperfect": 100_000},
        lengths={"imperfect": Length(60_000, 2_000, 10_000)},
        environments=("Hopper-v5",),
        toys=(),
        experiments=("values",),
    ),
    "paper": Preset(
        says="the paper's own scale: a million steps, five trials, three environments, experts "
        "chosen 5 of 15; about two months on two cores",
        trials=5,
        transitions={
            "final-buffer": 1_000_000,
            "concurrent": 1_000_000,
            "imitation": 1_000_000,
            "imperfect": 100_000,
            "random": 5_000,
        },
        lengths=alike(Length(1_000_000)),
        agents=15,
    ),
}
