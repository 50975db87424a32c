"""The scale of the experiments: the paper's, and three that one machine can run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bcq.algorithms.learning import AlgorithmConfig
from bcq.experiments.kinds import Batch, Experts, OnlineAgent, Training
from bcq.runs.schedules import BehaviourSchedule, Schedule

HOPPER, CHEETAH, WALKER = "Hopper-v5", "HalfCheetah-v5", "Walker2d-v5"
PENDULUM, REACHER = "Pendulum-v1", "Reacher-v5"  # of supplement D.3
CHOICES = ("CartPole-v1", "Acrobot-v1")  # environments whose actions are choices
MUJOCO, TOYS = (HOPPER, CHEETAH, WALKER), (PENDULUM, REACHER)
ExperimentName = Literal[
    "theory",
    "extrapolation",
    "results",
    "values",
    "perturbation",
    "uncertainty",
    "random",
    "judging",
]
PresetName = Literal["smoke", "quick", "standard", "paper"]
RECIPES = ("final-buffer", "concurrent", "imitation", "imperfect")
FIGURE_1 = ("final-buffer", "concurrent", "imitation")
PERTURBATIONS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)  # Phi, in half-widths of the action range


@dataclass(frozen=True)
class Plan:
    """One task of an experiment in one environment."""

    env: str
    task: str  # recipe of the batch
    rows: int  # transitions of the batch
    updates: int
    trials: int
    evaluate_every: int = 5_000
    true_value_every: int = 20_000
    life: int | None = (
        None  # time steps of the agent, whose first transitions are the batch; None: rows
    )
    part: int = 0  # jobs of a lower part are run first


@dataclass(frozen=True)
class Preset:
    """The scale of every experiment."""

    says: str
    plans: Mapping[ExperimentName, Sequence[Plan]]  # the theory has none
    evaluate_behaviour_every: int = 5_000
    evaluate_episodes: int = 10
    candidates: int = 0  # agents that the experts are chosen from; 0: the bundled experts
    candidate_steps: int = 1_000_000
    experts: int = 5  # kept of the candidates
    perturbations: tuple[float, ...] = PERTURBATIONS
    members: tuple[int, ...] = (4, 10)

    def batch(self, plan: Plan, trial: int) -> Batch:
        """The batch of a trial: trial i uses agent i or expert i."""
        source: OnlineAgent | Experts | None = None
        if plan.task in ("final-buffer", "concurrent"):
            noise = 0.5 if plan.task == "final-buffer" else 0.1
            source = self.behaviour(plan.env, plan.life or plan.rows, trial, noise)
        elif plan.task != "random" and self.candidates:
            steps, seeds = self.candidate_steps, range(self.candidates)
            source = Experts(
                tuple(self.behaviour(plan.env, steps, seed, 0.1) for seed in seeds),
                keep=self.experts,
            )
        return Batch(plan.task, plan.env, plan.rows, trial, source)

    def behaviour(self, env: str, steps: int, seed: int, noise: float) -> OnlineAgent:
        """An agent that learns online."""
        return OnlineAgent(
            BehaviourSchedule(
                env=env,
                steps=steps,
                seed=seed,
                noise=noise,
                evaluate_every=self.evaluate_behaviour_every,
                evaluate_episodes=self.evaluate_episodes,
            )
        )

    def training(self, config: AlgorithmConfig, plan: Plan, trial: int) -> Training:
        """An algorithm on the batch of a trial, with the trial's seed."""
        schedule = Schedule(
            steps=plan.updates,
            seed=trial,
            env=plan.env,
            evaluate_every=plan.evaluate_every,
            evaluate_episodes=self.evaluate_episodes,
            checkpoint_every=plan.evaluate_every,
            true_value_every=None if config.discount is None else plan.true_value_every,
            concurrent=plan.task == "concurrent",
        )
        return Training(config, schedule, self.batch(plan, trial))

    def trainings(
        self, name: ExperimentName, configs: Sequence[AlgorithmConfig]
    ) -> list[tuple[int, Training]]:
        """Every algorithm on every plan of an experiment, each with its part."""
        return [
            (plan.part, self.training(config, plan, trial))
            for plan in self.plans.get(name, ())
            for config in configs
            for trial in range(plan.trials)
        ]


def alike(environments: Sequence[str], tasks: Sequence[str], plan: Plan) -> list[Plan]:
    """The same plan for several environments and tasks."""
    return [replace(plan, env=env, task=task) for task in tasks for env in environments]


def judged(
    demonstrated: Sequence[str],
    choices: Sequence[str],
    *,
    rows: int,
    updates: int,
    trials: int,
    trials_of_random: int | None = None,
    trials_of_choices: int | None = None,
) -> list[Plan]:
    """Batches on which `bcq judge` is measured: imperfect demonstrations, and random actions.

    Small tasks cost little and have more policies that are clearly better than the behaviour.
    """
    plan = Plan("", "", rows, updates, trials)
    small = replace(plan, rows=min(rows, 20_000))
    return [
        *alike(demonstrated, ["imperfect"], plan),
        *alike([PENDULUM], ["random"], replace(small, trials=trials_of_random or trials)),
        *alike(choices, ["imperfect"], replace(small, trials=trials_of_choices or trials)),
    ]


def smoke() -> Preset:
    """Every kind of job once, to test the machinery."""
    plan = Plan(HOPPER, "", rows=400, updates=100, trials=1)
    plan = replace(plan, evaluate_every=100, true_value_every=100)
    four, imitation = alike([HOPPER], RECIPES, plan), replace(plan, task="imitation")
    return Preset(
        says="a few minutes: every part once; far too short to learn anything",
        plans={
            "extrapolation": four[:3],
            "results": four,
            "values": four,
            "perturbation": [imitation],
            "uncertainty": [imitation],
            "random": alike([PENDULUM], ["random"], plan),
            "judging": judged([], CHOICES[:1], rows=6_000, updates=1_600, trials=1)[-1:],
        },
        evaluate_behaviour_every=200,
        evaluate_episodes=2,
        perturbations=(0.05, 2.0),
        members=(2, 3),
    )


def quick() -> Preset:
    """What fits into an hour and a half."""
    plan = Plan(HOPPER, "", rows=100_000, updates=5_000, trials=2)
    plan = replace(plan, evaluate_every=500, true_value_every=2_500)
    imitation = replace(plan, task="imitation")
    four = [
        replace(plan, task="final-buffer", rows=20_000),
        replace(plan, task="concurrent", rows=7_500, updates=7_500),
        imitation,
        replace(
            plan, task="imperfect", updates=12_000, evaluate_every=1_000, true_value_every=6_000
        ),
    ]
    return Preset(
        says="about an hour and a half on two cores: Hopper and the toy tasks, two trials, "
        "thousands of updates instead of a million; too short to judge where values settle",
        plans={
            "extrapolation": four[:3],
            "results": four,
            "values": four,
            "perturbation": [imitation],
            "uncertainty": [imitation],
            "random": alike(TOYS, ["random"], replace(plan, rows=5_000)),
            "judging": judged([], CHOICES, rows=20_000, updates=4_800, trials=1),
        },
        evaluate_behaviour_every=1_000,
        perturbations=(0.0, 0.05, 0.5, 2.0),
    )


def standard() -> Preset:
    """Enough to judge most claims."""
    hopper = Plan(HOPPER, "", 100_000, 60_000, 3, evaluate_every=2_000, true_value_every=10_000)
    other = replace(hopper, updates=30_000, trials=2)
    late = replace(hopper, trials=2, part=3)
    results = [
        plan
        for task in ("imperfect", "imitation")
        for plan in (replace(hopper, task=task), *alike([CHEETAH, WALKER], [task], other))
    ]
    results += [
        replace(late, task="final-buffer"),
        replace(late, task="concurrent", rows=60_000, life=300_000),
    ]
    figure_1 = replace(hopper, evaluate_every=5_000, true_value_every=25_000, part=2)
    extrapolation = [
        replace(figure_1, task="final-buffer", updates=100_000),
        replace(figure_1, task="concurrent", rows=300_000, updates=300_000),
        replace(hopper, task="imitation", part=2),
    ]
    last = replace(hopper, trials=2, part=4)
    imitation = replace(last, task="imitation", updates=30_000)
    return Preset(
        says="about 35 core-hours on an AVX2 machine: three environments on demonstrations, Hopper "
        "on the rest, two or three trials, 20,000 to 300,000 updates instead of a million",
        plans={
            "extrapolation": extrapolation,
            "results": results,
            "values": results,
            "perturbation": [imitation],
            "uncertainty": [imitation],
            "random": [
                replace(last, env=PENDULUM, task="random", rows=5_000),
                replace(last, env=REACHER, task="random", rows=5_000, updates=20_000),
            ],
            "judging": judged(
                MUJOCO,
                CHOICES,
                rows=100_000,
                updates=4_800,
                trials=1,
                trials_of_random=2,
                trials_of_choices=6,
            ),
        },
        perturbations=(0.05, 0.25, 1.0),
    )


def paper() -> Preset:
    """The scale of the supplement."""
    plan = Plan("", "", 1_000_000, 1_000_000, 5)
    four = [
        *alike(MUJOCO, FIGURE_1, plan),
        *alike(MUJOCO, ["imperfect"], replace(plan, rows=100_000)),
    ]
    imitation = alike(MUJOCO, ["imitation"], plan)
    return Preset(
        says="the scale of the paper: a million steps, five trials, three environments, the best 5 "
        "of 15 experts; about two months on two cores",
        plans={
            "extrapolation": four[:-3],
            "results": four,
            "values": four,
            "perturbation": imitation,
            "uncertainty": imitation[:1],
            "random": alike(TOYS, ["random"], replace(plan, rows=5_000)),
            "judging": judged(MUJOCO, CHOICES, rows=100_000, updates=4_800, trials=5),
        },
        candidates=15,
    )


PRESETS: dict[PresetName, Preset] = {
    "smoke": smoke(),
    "quick": quick(),
    "standard": standard(),
    "paper": paper(),
}
