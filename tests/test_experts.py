import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bcq
import short_task
from bcq.collection import agents, behaviour, experts
from bcq.collection.experts import (
    best_checkpoint,
    bundled,
    describe,
    find,
    last_ten,
    read_expert,
    train_experts,
)
from bcq.runs.directory import Run
from bcq.runs.schedules import BehaviourSchedule
from bcq.system.errors import InputError
from bcq.system.seeds import Role, derive
from short_task import AGENT, NAME, STEPS

SCHEDULES = [
    BehaviourSchedule(
        env=NAME,
        steps=STEPS,
        seed=seed,
        random_steps=30,
        evaluate_every=20,
        evaluate_episodes=2,
        keep="all",
    )
    for seed in range(3)
]
OBSERVATIONS = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


@pytest.fixture(autouse=True, scope="module")
def _surroundings() -> Iterator[None]:
    with short_task.registered(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents, "DDPGConfig", lambda: AGENT)
        yield


def set_returns(run: Run, first: float) -> None:
    """In the place of the evaluations that were made: two episodes each, the mean ever higher."""
    steps = sorted({row["step"] for row in run.read("episodes.jsonl")})
    rows = [
        {"step": step, "episode": episode, "return": first + i + 2 * episode - 1, "length": 1}
        for i, step in enumerate(steps)
        for episode in range(2)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (run.directory / "episodes.jsonl").write_text(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three agents, trained and ranked; then ranked again, finished ones not repeated."""
    folder = tmp_path_factory.mktemp("experts")
    train_experts(folder, SCHEDULES, keep=1)
    for seed in range(3):
        set_returns(run_of(folder, seed), first=10.0 * seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(behaviour, "learn")
        train_experts(folder, SCHEDULES, keep=2)
    return folder


def run_of(folder: Path, seed: int) -> Run:
    return Run.open(folder / f"{NAME}-seed{seed}")


@pytest.fixture(scope="module")
def best(folder: Path) -> Path:
    return folder / "kept" / f"{NAME}-0.safetensors"


@pytest.fixture(scope="module")
def chosen(folder: Path) -> experts.Choice:
    """The agent and the checkpoint that the best expert comes from."""
    first = ranking_of(folder)[0]
    return experts.Choice(run_of(folder, first["seed"]), first["steps"], first["score"])


@pytest.fixture
def copied(best: Path, tmp_path: Path) -> Path:
    """An expert's two files, to be damaged."""
    for suffix in (".safetensors", ".json"):
        shutil.copy(best.with_suffix(suffix), tmp_path / f"expert{suffix}")
    return tmp_path / "expert.safetensors"


# Training and ranking


def score_of(run: Run, step: int) -> float:
    """What a checkpoint earns on the episodes that choose."""
    seed = derive(run.config.schedule.seed, Role.CHOICE)
    return bcq.evaluate(run.policy(step), NAME, episodes=50, seed=seed).mean


def test_an_agents_best_checkpoint_is_that_which_earns_most_on_fresh_episodes(
    folder: Path,
) -> None:
    run = run_of(folder, 1)
    steps = [one["step"] for one in run.checkpoints()]
    assert len(steps) > 12
    favoured = steps[-10:]  # their evaluations are the highest ten
    scores = {step: score_of(run, step) for step in favoured}
    choice = best_checkpoint(run)
    assert choice.score == max(scores.values()) > min(scores.values())
    assert scores[choice.step] == choice.score
    assert choice.step != favoured[-1]  # else the last would do as well


def test_how_an_agent_ended_is_the_mean_of_its_last_ten_evaluations(folder: Path) -> None:
    count = len({row["step"] for row in run_of(folder, 1).read("episodes.jsonl")})
    assert last_ten(run_of(folder, 1)) == pytest.approx(10 + count - 1 - 4.5)


def ranking_of(folder: Path) -> list[dict[str, Any]]:
    ranking: list[dict[str, Any]] = json.loads(
        (folder / "kept" / f"{NAME}-ranking.json").read_text()
    )
    return ranking


def test_the_best_are_kept_and_all_are_disclosed(folder: Path, best: Path) -> None:
    ranking = ranking_of(folder)
    choices = {seed: best_checkpoint(run_of(folder, seed)) for seed in range(3)}
    order = sorted(range(3), key=lambda seed: -choices[seed].score)
    assert ranking == [
        {
            "seed": seed,
            "steps": choices[seed].step,
            "score": choices[seed].score,
            "trained_steps": run_of(folder, seed).checkpoint_step(),
            "mean_return_of_the_last_ten_evaluations": last_ten(run_of(folder, seed)),
            "kept": rank < 2,
        }
        for rank, seed in enumerate(order)
    ]
    assert sorted(path.name for path in (folder / "kept").iterdir()) == [
        *(f"{NAME}-0.json", f"{NAME}-0.safetensors"),
        *(f"{NAME}-1.json", f"{NAME}-1.safetensors"),
        f"{NAME}-ranking.json",
    ]
    for rank, seed in enumerate(order[:2]):
        card = json.loads((folder / "kept" / f"{NAME}-{rank}.json").read_text())
        assert card["ranking"] == ranking
        assert (card["rank"], card["seed"]) == (rank, seed)
        assert card["steps"] == choices[seed].step
    assert best.exists()


def test_the_best_are_carried_on_while_their_best_checkpoint_is_of_the_last_leg(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    improving = {0: 500, 1: 300, 2: 360}  # until when each is at its best at its end

    def train(path: Path, _: object, schedule: BehaviourSchedule, *, resume: bool) -> Run:
        assert resume
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").unlink(missing_ok=True)
        return Run.create(path, replace(run_of(folder, 0).config, schedule=schedule))

    def choose(run: Run) -> experts.Choice:
        seed, steps = run.config.schedule.seed, run.config.schedule.steps
        done = 240 if seed == 1 else 200  # 240 is just not of the last leg
        return experts.Choice(run, steps if steps < improving[seed] else done, score=seed)

    def steps(keep: int, longest: int, asked: int = STEPS) -> list[int]:
        schedules = [replace(schedule, steps=asked) for schedule in SCHEDULES]
        train_experts(tmp_path, schedules, keep=keep, longest=longest)
        return [run_of(tmp_path, seed).config.schedule.steps for seed in range(3)]

    assert experts.LEG == 100_000
    monkeypatch.setattr(experts, "LEG", 60)
    monkeypatch.setattr(experts, "train_behaviour", train)
    monkeypatch.setattr(experts, "best_checkpoint", choose)
    monkeypatch.setattr(experts, "write_best", lambda *_, **__: [])
    assert steps(keep=3, longest=0) == [300, 300, 300]
    for _ in range(2):  # a finished command does nothing more
        assert steps(keep=2, longest=1_000) == [300, 300, 360]  # 0 is not among the best two
    assert steps(keep=3, longest=400) == [400, 300, 360]
    assert steps(keep=3, longest=1_000) == [520, 300, 360]
    assert steps(keep=9, longest=0, asked=400) == [520, 400, 400]


def test_the_card_says_what_the_agent_earns_in_a_hundred_fresh_episodes(
    chosen: experts.Choice, best: Path
) -> None:
    card = json.loads(best.with_suffix(".json").read_text())
    result = bcq.evaluate(chosen.run.policy(chosen.step), NAME, episodes=100, seed=0)
    assert card["mean_return_of_50_episodes_it_was_chosen_by"] == chosen.score != result.mean
    assert card["mean_return_of_100_fresh_episodes"] == pytest.approx(result.mean, rel=1e-6)
    assert card["std_return_of_100_fresh_episodes"] == pytest.approx(result.std, rel=1e-6)


def test_each_rank_is_tested_on_episodes_of_its_own(folder: Path) -> None:
    second = ranking_of(folder)[1]
    policy = run_of(folder, second["seed"]).policy(second["steps"])
    result = bcq.evaluate(policy, NAME, episodes=100, seed=1)
    card = json.loads((folder / "kept" / f"{NAME}-1.json").read_text())
    assert card["mean_return_of_100_fresh_episodes"] == pytest.approx(result.mean, rel=1e-6)


def test_the_best_come_first_in_whatever_order_they_are_given(folder: Path, tmp_path: Path) -> None:
    choices = [
        experts.Choice(run_of(folder, one["seed"]), one["steps"], one["score"])
        for one in reversed(ranking_of(folder))
    ]
    (path,) = experts.write_best(choices, tmp_path, keep=1)
    assert path == tmp_path / f"{NAME}-0.safetensors"
    ranking = json.loads((tmp_path / f"{NAME}-ranking.json").read_text())
    assert [one["seed"] for one in ranking] == [one["seed"] for one in ranking_of(folder)]
    assert json.loads(path.with_suffix(".json").read_text())["seed"] == ranking[0]["seed"]


def test_the_card_says_where_the_agent_comes_from(chosen: experts.Choice, best: Path) -> None:
    text = best.with_suffix(".json").read_text()
    card = json.loads(text)
    assert text == json.dumps(card, indent=2) + "\n"
    config = json.loads((chosen.run.directory / "config.json").read_text())
    for name in ("algorithm", "schedule", "settings", "task", "versions", "commit", "threads"):
        assert card[name] == config[name], name
    assert card["environment"] == NAME
    assert card["hidden_sizes"] == [8, 8]


def test_an_expert_is_described_in_a_line_with_its_selection(
    chosen: experts.Choice, best: Path
) -> None:
    expert = read_expert(best)
    mean, std = (expert.card[f"{kind}_return_of_100_fresh_episodes"] for kind in ("mean", "std"))
    final = expert.card["mean_return_of_the_last_ten_evaluations"]
    assert describe(expert) == (
        f"{NAME} 0: return {mean:.0f} ± {std:.0f} (std, 100 episodes); ddpg, seed "
        f"{chosen.run.config.schedule.seed}, number 1 of 3, at step {chosen.step} of "
        f"{chosen.run.checkpoint_step()}; mean return of its last ten evaluations {final:.0f}"
    )


# Reading


def test_an_expert_acts_as_the_checkpoint_it_comes_from(chosen: experts.Choice, best: Path) -> None:
    expected = chosen.run.policy(chosen.step).act(OBSERVATIONS)
    expert = read_expert(best)
    assert expert.policy.act(OBSERVATIONS).tobytes() == expected.tobytes()
    assert expert.policy.task.as_json() == chosen.run.task.as_json()
    assert (np.ptp(expected, axis=0) > 0.01).all()


def test_an_experts_file_holds_the_actor_alone(folder: Path, best: Path) -> None:
    checkpoint = next(run_of(folder, 1).directory.glob("step-*"))
    assert best.stat().st_size < checkpoint.stat().st_size / 4


def test_an_expert_is_found_by_number_file_and_run(
    folder: Path, chosen: experts.Choice, best: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "BUNDLED", folder / "kept")
    assert [path.stem for path in bundled(NAME)] == [f"{NAME}-0", f"{NAME}-1"]
    run, step, _ = chosen
    seed, last = run.config.schedule.seed, run.checkpoint_step()
    for source, name, at in (
        ("0", f"expert {NAME}-0 (seed {seed}, {step} steps)", step),
        (str(best), f"expert {NAME}-0 (seed {seed}, {step} steps)", step),
        (str(run.directory), f"ddpg at step {last} (", last),
    ):
        expert = find(source, NAME)
        assert expert.environment == NAME
        assert expert.name.startswith(name)
        expected = run.policy(at).act(OBSERVATIONS)
        assert expert.policy.act(OBSERVATIONS).tobytes() == expected.tobytes()
    assert find("1", NAME).card["seed"] == ranking_of(folder)[1]["seed"]


@pytest.mark.parametrize(
    ("environment", "least"),
    [("Hopper-v5", 2_800), ("Walker2d-v5", 2_000), ("HalfCheetah-v5", 6_000)],
)
def test_two_strong_experts_of_each_of_the_papers_tasks_are_bundled(
    environment: str, least: float
) -> None:
    assert len(bundled(environment)) >= 2
    for number in range(len(bundled(environment))):
        expert = find(str(number), environment)
        assert expert.card["mean_return_of_100_fresh_episodes"] >= least
        earned = bcq.evaluate(expert.policy, environment, episodes=10, seed=5).mean
        assert earned >= 0.9 * least  # ten episodes tell less than the card's hundred


def test_runs_of_different_weights_have_different_names(folder: Path) -> None:
    directories = [str(run_of(folder, seed).directory) for seed in (0, 1, 2, 0)]
    names = {find(directory, NAME).name for directory in directories}
    assert len(names) == 3
    assert all(re.fullmatch(r"ddpg at step \d+ \([0-9a-f]{12}\)", name) for name in names)


@pytest.mark.parametrize(
    ("played", "known", "asked", "found"),
    [
        (None, NAME, NAME, True),
        (None, NAME, "Hopper-v5", False),
        (None, None, NAME, True),
        (NAME, None, NAME, True),
        (NAME, None, "Hopper-v5", False),
    ],
)
def test_an_offline_run_is_for_the_environment_of_its_evaluations_or_its_data(
    played: str | None, known: str | None, asked: str, found: bool, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(run_of(folder, 0).directory, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config["schedule"]["env"], config["dataset"]["environment"] = played, known
    path.write_text(json.dumps(config))
    if found:
        assert find(str(tmp_path / "run"), asked).environment == asked
    else:
        with pytest.raises(InputError, match=f"is for {NAME}, not for {asked}"):
            find(str(tmp_path / "run"), asked)


# Mistakes


def refusal(source: str | Path, environment: str = NAME) -> str:
    with pytest.raises(InputError) as caught:
        find(str(source), environment)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_number_without_an_expert_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "BUNDLED", tmp_path)
    message = refusal("0", "Hopper-v5")
    assert message.startswith("policy 0: 0 experts of Hopper-v5 are bundled")
    assert bundled("Hopper-v5") == []
    monkeypatch.setattr(experts, "BUNDLED", folder / "kept")
    assert refusal("2").startswith(f"policy 2: 2 experts of {NAME} are bundled")


def test_an_expert_of_another_environment_is_refused(folder: Path, best: Path) -> None:
    for source in (best, run_of(folder, 0).directory):
        message = refusal(source, "Hopper-v5")
        assert message == f"policy {source}: is for {NAME}, not for Hopper-v5"


def test_what_is_no_expert_is_named(tmp_path: Path, copied: Path) -> None:
    assert "nowhere.json: cannot be read" in refusal(tmp_path / "nowhere.safetensors")
    assert "does not contain a run" in refusal(tmp_path)
    copied.with_suffix(".json").unlink()
    assert refusal(copied).startswith(f"{copied.with_suffix('.json')}: cannot be read as JSON")


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "gone"])
def test_a_damaged_file_is_named(damage: str, copied: Path) -> None:
    content = copied.read_bytes()
    if damage == "gone":
        copied.unlink()
    else:
        copied.write_bytes({"empty": b"", "cut": content[:-1], "text": b"hello"}[damage])
    assert refusal(copied).startswith(f"{copied}: cannot be read: ")


@pytest.mark.parametrize("text", ["", "[]", "not JSON", "{}", "\0"])
def test_a_card_that_is_none_is_named(text: str, copied: Path) -> None:
    copied.with_suffix(".json").write_text(text)
    assert refusal(copied).startswith(f"{copied.with_suffix('.json')}: ")


ABSURD: list[tuple[str, Any]] = [
    ("task", None),
    ("task", 3),
    ("task", {}),
    ("task.observation_size", "4"),
    ("task.observation_size", 4.5),
    ("task.observation_size", 5),
    ("task.action_low", [1, 2, 3]),
    ("task.action_low", [7, 7]),
    ("task.action_low", None),
    ("hidden_sizes", None),
    ("hidden_sizes", 8),
    ("hidden_sizes", []),
    ("hidden_sizes", [8]),
    ("hidden_sizes", [8, 9]),
    ("hidden_sizes", ["8", "8"]),
    ("hidden_sizes", [10**9, 10**9]),
    ("steps", None),
    ("task.observation_size", 0),
    ("task.action_low", ["a", "b"]),
    ("task.action_low", [[1, 2], [3]]),
    ("hidden_sizes", [0, 8]),
    ("steps", "many"),
]


@pytest.mark.parametrize(
    ("name", "value"),
    ABSURD,
)
def test_an_absurd_card_is_refused_in_one_line(name: str, value: Any, copied: Path) -> None:
    path = copied.with_suffix(".json")
    card = json.loads(path.read_text())
    place, *rest = name.split(".")
    if rest:
        card[place][rest[0]] = value
    else:
        card[place] = value
    path.write_text(json.dumps(card))
    refusal(copied)


@pytest.mark.parametrize("name", ["task", "hidden_sizes", "seed", "steps", "environment"])
def test_a_card_that_lacks_something_is_named(name: str, copied: Path) -> None:
    path = copied.with_suffix(".json")
    card = json.loads(path.read_text())
    del card[name]
    path.write_text(json.dumps(card))
    assert refusal(copied) == f"{path}: is not the card of an expert: '{name}'"
