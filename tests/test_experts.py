import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bcq
import short_task
from bcq import behaviour, experts
from bcq.behaviour import BehaviourSchedule
from bcq.errors import InputError
from bcq.experts import bundled, describe, find, read_expert, score, train_experts
from bcq.runs import Run
from short_task import AGENT, NAME, STEPS

SCHEDULES = [
    BehaviourSchedule(
        env=NAME, steps=STEPS, seed=seed, random_steps=30, evaluate_every=20, evaluate_episodes=2
    )
    for seed in range(3)
]
OBSERVATIONS = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


@pytest.fixture(autouse=True, scope="module")
def _surroundings() -> Iterator[None]:
    with short_task.registered(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(experts, "DDPGConfig", lambda: AGENT)
        yield


def set_returns(run: Run, means: list[float]) -> None:
    """In the place of the evaluations that were made: two episodes each, with that mean."""
    steps = sorted({row["step"] for row in run.read("episodes.jsonl")})
    assert len(means) <= len(steps)
    rows = [
        {"step": step, "episode": episode, "return": mean + 2 * episode - 1, "length": 1}
        for step, mean in zip(steps[-len(means) :], means, strict=True)
        for episode in range(2)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (run.directory / "episodes.jsonl").write_text(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three agents, trained; then their evaluations are changed, and they are ranked again."""
    folder = tmp_path_factory.mktemp("experts")
    train_experts(folder, SCHEDULES, keep=1)
    set_returns(run_of(folder, 0), [1000.0] * 3 + [1.0] * 10)  # good at first
    set_returns(run_of(folder, 1), [0.0] * 3 + [6.0] * 5 + [4.0] * 5)
    set_returns(run_of(folder, 2), [0.0] * 12 + [30.0])  # good at last
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(behaviour, "learn")  # finished runs are not repeated
        train_experts(folder, SCHEDULES, keep=2)
    return folder


def run_of(folder: Path, seed: int) -> Run:
    return Run.open(folder / f"{NAME}-seed{seed}")


@pytest.fixture(scope="module")
def best(folder: Path) -> Path:
    return folder / "kept" / f"{NAME}-0.safetensors"


@pytest.fixture
def copied(best: Path, tmp_path: Path) -> Path:
    """An expert's two files, to be damaged."""
    for suffix in (".safetensors", ".json"):
        shutil.copy(best.with_suffix(suffix), tmp_path / f"expert{suffix}")
    return tmp_path / "expert.safetensors"


# Training and ranking


def test_an_agent_is_scored_by_its_last_ten_evaluations(folder: Path) -> None:
    assert [score(run_of(folder, seed)) for seed in range(3)] == pytest.approx([1, 5, 3])


def test_the_best_are_kept_and_all_are_disclosed(folder: Path, best: Path) -> None:
    ranking = [
        {"seed": 1, "steps": run_of(folder, 1).checkpoint_step(), "score": 5.0, "kept": True},
        {"seed": 2, "steps": run_of(folder, 2).checkpoint_step(), "score": 3.0, "kept": True},
        {"seed": 0, "steps": run_of(folder, 0).checkpoint_step(), "score": 1.0, "kept": False},
    ]
    assert json.loads((folder / "kept" / f"{NAME}-ranking.json").read_text()) == ranking
    assert sorted(path.name for path in (folder / "kept").iterdir()) == [
        *(f"{NAME}-0.json", f"{NAME}-0.safetensors"),
        *(f"{NAME}-1.json", f"{NAME}-1.safetensors"),
        f"{NAME}-ranking.json",
    ]
    for rank, seed in enumerate((1, 2)):
        card = json.loads((folder / "kept" / f"{NAME}-{rank}.json").read_text())
        assert card["ranking"] == ranking
        assert (card["rank"], card["seed"]) == (rank, seed)
        assert card["mean_return_of_the_last_ten_evaluations"] == ranking[rank]["score"]
        assert card["steps"] == run_of(folder, seed).checkpoint_step()
    assert best.exists()


def test_the_card_says_what_the_agent_earns_in_a_hundred_fresh_episodes(
    folder: Path, best: Path
) -> None:
    card = json.loads(best.with_suffix(".json").read_text())
    result = bcq.evaluate(run_of(folder, 1).policy(), NAME, episodes=100, seed=0)
    assert card["mean_return_of_100_fresh_episodes"] == pytest.approx(result.mean, rel=1e-6)
    assert card["std_return_of_100_fresh_episodes"] == pytest.approx(result.std, rel=1e-6)


def test_the_card_says_where_the_agent_comes_from(folder: Path, best: Path) -> None:
    card = json.loads(best.with_suffix(".json").read_text())
    config = run_of(folder, 1).config
    for name in ("algorithm", "schedule", "settings", "task", "versions", "commit", "threads"):
        assert card[name] == config[name], name
    assert card["environment"] == NAME
    assert card["hidden_sizes"] == [8, 8]


def test_an_expert_is_described_in_a_line_with_its_selection(best: Path) -> None:
    expert = read_expert(best)
    mean, std = (expert.card[f"{kind}_return_of_100_fresh_episodes"] for kind in ("mean", "std"))
    steps = expert.card["steps"]
    assert describe(expert) == (
        f"{NAME} 0: return {mean:.0f} ± {std:.0f} (std, 100 episodes); ddpg, {steps} steps, "
        "seed 1, number 1 of 3 by the last ten evaluations (5)"
    )


# Reading


def test_an_expert_acts_as_the_run_it_comes_from(folder: Path, best: Path) -> None:
    expected = run_of(folder, 1).policy().act(OBSERVATIONS)
    expert = read_expert(best)
    assert expert.policy.act(OBSERVATIONS).tobytes() == expected.tobytes()
    assert expert.policy.task.as_json() == run_of(folder, 1).task.as_json()
    assert (np.ptp(expected, axis=0) > 0.01).all()


def test_an_experts_file_holds_the_actor_alone(folder: Path, best: Path) -> None:
    checkpoint = next(run_of(folder, 1).directory.glob("step-*"))
    assert best.stat().st_size < checkpoint.stat().st_size / 4


def test_an_expert_is_found_by_number_file_and_run(
    folder: Path, best: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "BUNDLED", folder / "kept")
    assert [path.stem for path in bundled(NAME)] == [f"{NAME}-0", f"{NAME}-1"]
    steps = run_of(folder, 1).checkpoint_step()
    directory = run_of(folder, 1).directory
    for source, name in (
        ("0", f"expert {NAME}-0 (seed 1, {steps} steps)"),
        (str(best), f"expert {NAME}-0 (seed 1, {steps} steps)"),
        (str(directory), f"ddpg at step {steps} ("),
    ):
        expert = find(source, NAME)
        assert expert.environment == NAME
        assert expert.name.startswith(name)
        expected = run_of(folder, 1).policy().act(OBSERVATIONS)
        assert expert.policy.act(OBSERVATIONS).tobytes() == expected.tobytes()
    assert find("1", NAME).card["seed"] == 2


def test_runs_of_different_weights_have_different_names(folder: Path) -> None:
    directories = [str(run_of(folder, seed).directory) for seed in (0, 1, 2, 0)]
    assert len({find(directory, NAME).name for directory in directories}) == 3


@pytest.mark.parametrize(
    ("known", "asked", "found"),
    [(NAME, NAME, True), (NAME, "Hopper-v5", False), (None, NAME, True)],
)
def test_an_offline_run_is_for_the_environment_of_its_data(
    known: str | None, asked: str, found: bool, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(run_of(folder, 0).directory, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config["schedule"]["env"], config["dataset"]["environment"] = None, known
    path.write_text(json.dumps(config))
    if found:
        assert find(str(tmp_path / "run"), asked).environment == asked
    else:
        with pytest.raises(InputError, match=f"is for {known}, not for {asked}"):
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
    assert message.startswith("policy 0: 0 experts of Hopper-v5 are bundled; train one with")
    assert bundled("Hopper-v5") == []
    monkeypatch.setattr(experts, "BUNDLED", folder / "kept")
    assert refusal("2").startswith(f"policy 2: 2 experts of {NAME} are bundled")


def test_an_expert_of_another_environment_is_refused(folder: Path, best: Path) -> None:
    for source in (best, run_of(folder, 0).directory):
        message = refusal(source, "Hopper-v5")
        assert message == f"policy {source}: is for {NAME}, not for Hopper-v5"


def test_what_is_no_expert_is_named(tmp_path: Path, copied: Path) -> None:
    assert "nowhere.json: cannot be read" in refusal(tmp_path / "nowhere.safetensors")
    assert "holds no run" in refusal(tmp_path)
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
    assert refusal(copied) == f"{path}: is no expert's card: '{name}'"
