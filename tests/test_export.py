"""Exported policies act like the learner, anywhere, and say what they are."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import equinox as eqx
import jax
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.numpy

from bcq.algorithms import ALGORITHMS, CONTINUOUS, DISCRETE
from bcq.algorithms.learning import Drawing
from bcq.cli.application import main
from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.data.dataset import Dataset
from bcq.data.layout import Layout, ObservationColumn, Past
from bcq.data.saving import save
from bcq.data.scaling import Scaling
from bcq.export import exporting, files, graph, read_policy
from bcq.export.content import Content, Mode, content_of
from bcq.export.exporting import export_policy
from bcq.export.files import READER, describe
from bcq.export.parity import TOLERANCE, Parity, compare, margins
from bcq.runs.configuration import LoggedBatch, OwnExperience
from bcq.runs.directory import Run
from bcq.runs.schedules import BehaviourSchedule
from bcq.system.errors import InputError
from bcq.training.policy import Policy
from made_up import made_up
from run_cases import configuration
from test_training import SMALL, data_for

pytestmark = pytest.mark.usefixtures("own_compilation_cache")

DRAWING = ("bcq", "vae-bc")
ROWS = 10_000
CARD = {"task": {}, "exported_by": {"bcq": "0"}}


@cache
def policy_of(name: str, *, scaled: bool = True, seed: int = 0) -> Policy:
    """A policy of made-up weights, large enough that every clip has something to do."""
    dataset = data_for(SMALL[name])
    scaling = Scaling.of(3 * dataset.observations + 1, dataset.rewards) if scaled else None
    task = replace(dataset.task, scaling=scaling)
    learner = made_up(SMALL[name], task.observation_size, task.action_size, seed=seed, scale=2.0)
    return Policy(learner, task)


def content(name: str, *, mode: Mode = "deterministic", **options: Any) -> Content:
    policy = options.pop("policy", None) or policy_of(name)
    return content_of(policy, {**CARD, "task": policy.task.as_json()}, mode=mode, **options)


def session_of(made: Content | Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    encoded = files.encode(made, ".onnx") if isinstance(made, Content) else made.read_bytes()
    return onnxruntime.InferenceSession(encoded, options, providers=["CPUExecutionProvider"])


def run_onnx(made: Content | Path, observations: Any, **inputs: Any) -> dict[str, Any]:
    session = session_of(made)
    found = session.run(None, {"observation": np.asarray(observations, np.float32), **inputs})
    return dict(zip((each.name for each in session.get_outputs()), found, strict=True))


def states(rows: int = ROWS) -> np.ndarray:
    found = np.random.default_rng(7).normal(1, 3, (rows, 4)).astype(np.float32)
    found[5::10] *= 15  # beyond the limit of scaled observations
    return found


def noise_drawn(learner: Any, rows: int, seed: int, step: int) -> Any:
    """The noise that `Policy.act` draws for its rows."""
    if not isinstance(learner, Drawing):
        return None
    key = jax.random.fold_in(jax.random.key(seed), step)
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(np.arange(rows))
    return np.asarray(jax.vmap(lambda one: jax.random.normal(one, learner.noise_shape))(keys))


def make_run(folder: Path, name: str = "bcq", **changes: Any) -> tuple[Run, Dataset]:
    dataset, policy = data_for(SMALL[name]), policy_of(name)
    config = replace(
        configuration(SMALL[name]), task=policy.task, dataset=LoggedBatch.of(dataset), **changes
    )
    run = Run.create(folder / "run", config)
    run.save(30, policy.learner)  # type: ignore[arg-type]
    return run, dataset


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(words: str, *arguments: object) -> None:
    """The command ends with one line that has these words."""
    with pytest.raises(SystemExit) as stopped:
        main(["export", *map(str, arguments)])
    assert str(stopped.value).startswith("bcq: ")
    assert words in str(stopped.value)
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_given_the_noise_that_jax_draws_a_file_acts_as_the_policy_does(
    name: str, suffix: str, scaled: bool
) -> None:
    policy = policy_of(name, scaled=scaled)
    made = content(name, mode="noise-input", policy=policy)
    noise = noise_drawn(policy.learner, ROWS, 3, 4)
    assert (noise is None) == (name not in DRAWING)
    act = files.actor_of(files.encode(made, suffix), suffix)
    found = np.asarray(act(states(), noise)).reshape(ROWS, -1)
    expected = policy.act(states(), seed=3, step=4)
    width = 1 if name in DISCRETE else policy.task.bounds.high - policy.task.bounds.low
    differences = (np.abs(found - expected) / width).max(axis=1)
    inputs = policy.scaled(states()), np.zeros(ROWS) if noise is None else noise
    near_tie = np.asarray(margins(policy.models, *inputs)) < 1e-5
    assert differences[~near_tie].max() <= 1e-5
    assert (differences > 1e-5).sum() <= ROWS / 500  # near-ties that rounding decided otherwise
    assert len(np.unique(found, axis=0)) > 1  # it is not the same action everywhere


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
@pytest.mark.parametrize("name", DRAWING)
def test_a_deterministic_file_takes_the_best_of_its_bank_of_latents(name: str, suffix: str) -> None:
    policy, made = policy_of(name), content(name, seed=5)
    shape = policy.learner.noise_shape  # type: ignore[attr-defined]
    bank = made.arrays["latents"]
    assert bank.shape == shape
    assert (bank.reshape(-1, shape[-1])[0] == 0).all()
    assert name == "vae-bc" or np.abs(bank[1:]).min() > 0
    act = files.actor_of(files.encode(made, suffix), suffix)
    parity = compare(policy, made, act, states(2_000))
    assert parity.largest <= TOLERANCE
    assert parity.ties < 20
    alone = np.concatenate([act(row[None], None) for row in states(20)])
    np.testing.assert_allclose(alone, act(states(20), None), rtol=0, atol=1e-4)
    again = np.asarray(policy.learner.act_with(policy.scaled(states(5)), np.stack([bank] * 5)))  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        policy.task.bounds.denormalise(again), act(states(5), None), atol=1e-4
    )
    assert (content(name, seed=5).arrays["latents"] == bank).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_graph_has_the_version_and_the_borders_that_are_promised(name: str) -> None:
    model = onnx.load_from_string(files.encode(content(name, mode="noise-input"), ".onnx"))
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    session = session_of(content(name, mode="noise-input"))
    inputs = {each.name: each.shape for each in session.get_inputs()}
    assert inputs.pop("observation") == ["rows", 4]
    drawn = {"bcq": ["rows", 10, 4], "vae-bc": ["rows", 4]}
    assert inputs == ({"noise": drawn[name]} if name in DRAWING else {})
    kind = ("tensor(int64)", ["rows"]) if name in DISCRETE else ("tensor(float)", ["rows", 2])
    outputs = {each.name: (each.type, each.shape) for each in session.get_outputs()}
    flag = ("tensor(bool)", ["rows"])
    assert outputs == {"action": kind, "valid": flag, "inside": flag}


@pytest.mark.parametrize("name", ["bcq", "dqn", "bc", "vae-bc", "discrete-bcq"])
def test_any_number_of_rows_is_taken(name: str) -> None:
    session, reader = session_of(content(name)), read_policy.Policy(*parts(content(name)))
    for rows in (0, 1, 7):
        action, valid, inside = session.run(None, {"observation": states(rows)})
        assert len(action) == len(valid) == len(inside) == len(reader.act(states(rows))) == rows


def parts(made: Content) -> tuple[dict[str, Any], dict[str, Any]]:
    return made.arrays, made.card


BROKEN = (np.nan, np.inf, -np.inf)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_observation_that_is_not_finite_gives_the_fallback_and_is_not_valid(name: str) -> None:
    rows = states(4)
    rows[[0, 1, 2], [0, 3, 1]] = BROKEN
    usual = run_onnx(content(name), rows)
    assert usual["valid"].tolist() == [False, False, False, True]
    # The middle between -1, 3 and 0, 10; or the number after the last of three choices.
    expected = 3 if name in DISCRETE else [1.0, 5.0]
    assert (usual["action"][:3] == expected).all()
    reader = read_policy.Policy(*parts(content(name)))
    assert np.allclose(usual["action"][3], reader.act(rows[3:])[0], atol=1e-4)
    with pytest.raises(ValueError, match="row 0: there is no finite action"):
        reader.act(rows)
    assert (reader.act(rows, fallback=reader.fallback)[:3] == expected).all()
    given = content(name, fallback=["right"] if name in DISCRETE else ["-0.5", "2"])
    asked = 1 if name in DISCRETE else [-0.5, 2.0]
    assert (run_onnx(given, rows)["action"][:3] == asked).all()
    assert (read_policy.Policy(*parts(given)).act(rows, fallback=asked)[:3] == asked).all()
    assert np.allclose(run_onnx(given, rows)["action"][3], usual["action"][3])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_no_observation_whatever_gives_an_action_that_is_not_a_number(name: str) -> None:
    largest = np.finfo(np.float32).max
    rows = np.array([[largest, -largest, largest, 1], [-largest] * 4, [1e30, -1e30, 0, 0]])
    bounds = policy_of(name).task.bounds
    for scaled in (True, False):
        made = content(name, policy=policy_of(name, scaled=scaled))
        reader = read_policy.Policy(*parts(made))
        for found in (run_onnx(made, rows)["action"], reader.act(rows, fallback=reader.fallback)):
            assert np.isfinite(found).all()
            assert ((bounds.low <= found) & (found <= bounds.high)).all()


def test_a_file_knows_whether_an_observation_is_within_the_range_of_the_batch() -> None:
    dataset = data_for(SMALL["bc"])
    seen = np.concatenate([dataset.observations, dataset.next_observations])
    low, high = seen.min(axis=0), seen.max(axis=0)
    rows = np.stack([low, high, low, high, (low + high) / 2])
    rows[2, 1] = np.nextafter(low[1], -9, dtype=np.float32)
    rows[3, 3] = np.nextafter(high[3], 9, dtype=np.float32)
    rows[4, 2] = np.nan
    made = content("bc", dataset=dataset)
    assert run_onnx(made, rows)["inside"].tolist() == [True, True, False, False, False]
    assert read_policy.Policy(*parts(made)).inside(rows).tolist() == [True, True, *[False] * 3]
    assert "within the range of the batch" in made.card["inside"]
    made = content("bc")
    assert run_onnx(made, rows)["inside"].tolist() == [*[True] * 4, False]
    assert read_policy.Policy(*parts(made)).inside(rows).tolist() == [*[True] * 4, False]
    assert "without the batch" in made.card["inside"]


@pytest.mark.parametrize("name", DISCRETE)
def test_only_permitted_choices_are_taken(name: str) -> None:
    policy, rows = policy_of(name), states(500)
    permitted = np.random.default_rng(2).random((500, 3)) < 0.5
    permitted[:, 1] |= ~permitted.any(axis=1)
    expected = policy.act(rows, permitted=permitted)[:, 0]
    assert (expected != policy.act(rows)[:, 0]).any()
    reader = read_policy.Policy(*parts(content(name)))
    assert (reader.act(rows, permitted=permitted) == expected).all()
    assert (run_onnx(content(name), rows, permitted=permitted)["action"] == expected).all()
    names = ("left", "right", "stay")
    assert reader.choose(rows, permitted=permitted) == [names[int(one)] for one in expected]
    permitted[3] = False
    found = run_onnx(content(name), rows, permitted=permitted)
    assert found["action"][3] == 3
    assert not found["valid"][3]
    assert found["valid"].sum() == 499
    with pytest.raises(ValueError, match="a row has no choice"):
        reader.act(rows, permitted=permitted)


def test_the_reader_refuses_what_it_cannot_use() -> None:
    reader = read_policy.Policy(*parts(content("bcq")))
    with pytest.raises(ValueError, match=r"shape \(4,\), but it must be \(rows, 4\)"):
        reader.act(np.zeros(4))
    with pytest.raises(ValueError, match=r"shape \(1, 3\)"):
        reader.inside(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="the mode deterministic"):
        reader.act(states(2), noise=np.zeros((2, 10, 4)))
    noisy = read_policy.Policy(*parts(content("bcq", mode="noise-input")))
    for noise in (None, np.zeros((1, 10, 4))):
        with pytest.raises(ValueError, match="the mode noise-input"):
            noisy.act(states(2), noise=noise)
    with pytest.raises(ValueError, match="numbers, not choices"):
        reader.choose(states(2))
    with pytest.raises(ValueError, match="format 2"):
        read_policy.Policy({}, {"format": 2})
    choosing = read_policy.Policy(*parts(content("discrete-bc")))
    with pytest.raises(ValueError, match="not the number of a choice"):
        choosing.choose([[np.nan] * 4], fallback=choosing.fallback)
    assert choosing.choose([[np.nan] * 4], fallback=2) == ["stay"]


def isolated(folder: Path, packages: tuple[str, ...], code: str) -> Any:
    """What a Python prints that has only these packages, and nothing of this project."""
    site = Path(np.__file__).parent.parent
    own = folder / "site"
    own.mkdir()
    for name in packages:
        for path in site.glob(f"{name}*"):
            (own / path.name).symlink_to(path)
    start = f"import sys; sys.path[:0] = [{str(own)!r}, '.']\n"
    gone = (
        "try:\n    import bcq\nexcept ImportError:\n    pass\nelse:\n    raise SystemExit('bcq')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + gone + code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ROW = [[0.5, -1.0, 2.0, 0.25], [1.0, 1.0, 1.0, 1.0]]


@pytest.mark.parametrize("name", ["bcq", "discrete-bcq"])
def test_the_numpy_file_works_where_nothing_of_this_project_is_installed(
    name: str, tmp_path: Path
) -> None:
    run, _ = make_run(tmp_path, name)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    export_policy(run, folder / "policy.safetensors")
    assert names_in(folder) == ["policy.safetensors", "read_policy.py"]
    code = f"""
import json, read_policy
policy = read_policy.load("policy.safetensors")
print(json.dumps([policy.act({ROW}).tolist(), sorted({{n.split(".")[0] for n in sys.modules}})]))
"""
    actions, modules = isolated(folder, ("numpy", "safetensors"), code)
    expected = read_policy.load(folder / "policy.safetensors").act(ROW)
    np.testing.assert_allclose(actions, expected, atol=1e-5)
    assert not {"jax", "onnxruntime", "bcq"} & set(modules)


def test_the_onnx_file_works_where_nothing_of_this_project_is_installed(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    export_policy(run, folder / "policy.onnx")
    assert names_in(folder) == ["policy.onnx"]
    code = f"""
import json, numpy, onnxruntime
session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
rows = numpy.array({ROW}, numpy.float32)
action, valid, inside = session.run(None, {{"observation": rows}})
card = json.loads(session.get_modelmeta().custom_metadata_map["card"])
print(json.dumps([action.tolist(), valid.tolist(), card["algorithm"]]))
"""
    packages = ("numpy", "onnxruntime", "flatbuffers", "packaging", "google", "protobuf")
    actions, valid, algorithm = isolated(folder, packages, code)
    np.testing.assert_allclose(actions, run_onnx(folder / "policy.onnx", ROW)["action"], atol=1e-5)
    assert (valid, algorithm) == ([True, True], "bcq")


def test_the_reader_is_short_and_imports_nothing_of_this_project() -> None:
    text = READER.read_text()
    assert len(text.splitlines()) < 150
    imported = {
        line.split()[1] for line in text.splitlines() if line.startswith(("import", "from"))
    }
    assert imported == {"json", "pathlib", "typing", "numpy", "numpy.typing", "safetensors"}


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_the_card_says_what_the_file_is(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, dataset = make_run(tmp_path, "discrete-bcq")
    path = tmp_path / f"policy{suffix}"
    labels = {"observations": ["a", "b", "c", "d"], "actions": ["way"]}
    export_policy(run, path, dataset=dataset, labels=labels, fallback=["stay"])
    main(["export", "--describe", str(path)])
    card = json.loads(capsys.readouterr().out)
    assert card == describe(path)
    assert card["algorithm"] == "discrete-bcq"
    assert card["settings"]["threshold"] == 0.3
    assert card["updates"] == 30
    assert card["task"] == run.task.as_json()
    assert card["task"]["action_names"] == ["left", "right", "stay"]
    assert card["observation_columns"] == ["a", "b", "c", "d"]
    assert card["action_columns"] == ["way"]
    assert card["dataset"]["fingerprint"] == dataset.fingerprint
    assert card["trained_by"] == {"versions": {"bcq": "0.1", "jax": "0.2"}, "commit": "c0ffee"}
    assert card["exported_by"].keys() == {"bcq", "commit"}
    assert card["acting"]["mode"] == "nothing is drawn"
    assert (card["fallback_given"], card["fallback"]) == (True, "stay, as asked for")
    low = np.minimum(dataset.observations.min(0), dataset.next_observations.min(0))
    assert card["seen"]["low"] == low.tolist()
    assert card["checked"] == {"states": "of the batch", "rows": 300, "largest": 0.0, "ties": 0}


def judged(run: Run, **changes: Any) -> dict[str, Any]:
    """What `bcq judge --json` prints, as far as a card tells it."""
    weights = run.checkpoints()[-1]["sha256"]
    value = {"value": 1.0, "low": 0.5, "high": 1.5}
    return {
        "chosen": {"run": "elsewhere/run", "step": 30, "sha256": weights},
        **{"verdict": "no worse", "objections": [], "fit_on": "held-out", "episodes": 12},
        **{"policy": value, "behaviour": value, "difference": value, "discount": 0.99},
        **{"seconds": {"fits": 3.0}, "candidates": []},
    } | changes


def test_a_verdict_about_this_checkpoint_goes_on_the_card(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path)
    (tmp_path / "judged.json").write_text(json.dumps(judged(run)))
    path = tmp_path / "policy.onnx"
    main(["export", str(run.directory), str(path), "--verdict", str(tmp_path / "judged.json")])
    verdict = describe(path)["verdict"]
    assert verdict == {name: judged(run)[name] for name in exporting.SAID}
    assert verdict["verdict"] == "no worse"
    export_policy(run, path, force=True)
    assert "verdict" not in describe(path)


def test_a_verdict_about_something_else_is_refused(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path)
    file, path = tmp_path / "judged.json", tmp_path / "policy.onnx"
    command = (run.directory, path, "--verdict", file)
    for content, words in (
        (judged(run, chosen={"sha256": "0" * 64}), "is about another checkpoint"),
        (judged(run, chosen=None), "is not what a judge says in JSON"),
        ({"verdict": "better"}, "is not what a judge says in JSON"),
        ([], "must contain a JSON object"),
    ):
        file.write_text(json.dumps(content))
        refused(words, *command)
    file.unlink()
    refused("cannot be read as JSON", *command)
    assert not path.exists()


def test_without_the_batch_the_card_says_so(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path)
    parity = export_policy(run, tmp_path / "policy.onnx", mode="noise-input")
    assert parity.rows == 1_000
    card = describe(tmp_path / "policy.onnx")
    assert card["checked"]["states"] == "random, around the scaling"
    assert (card["observation_columns"], card["action_columns"]) == (None, None)
    assert card["acting"]["mode"] == "noise-input"
    assert card["acting"]["noise_shape"] == [10, 4]
    assert card["fallback"] == "[1.0, 5.0], the middle of the action range"
    assert not card["fallback_given"]
    assert "seen" not in card


def test_the_card_names_past_steps_and_no_columns_that_do_not_fit(tmp_path: Path) -> None:
    run, dataset = make_run(tmp_path, "bc")
    short = {"observations": ["a", "b"]}
    assert exporting.card_of(run, dataset, short)["observation_columns"] is None
    past = Layout((ObservationColumn("x"),), Past(1, 1, 2, ("u", "v")))
    run.config = replace(run.config, task=replace(run.task, layout=past))
    names = ["x", "x@-1", "u@-1", "v@-1"]
    assert exporting.card_of(run, dataset, short)["observation_columns"] == names


def test_the_states_of_the_check_are_those_of_the_batch_or_around_the_scaling() -> None:
    policy, dataset = policy_of("bc"), data_for(SMALL["bc"])
    assert (exporting.states_of(policy, dataset, 0) == dataset.observations).all()  # all 300
    scaling = policy.task.scaling
    assert scaling is not None
    around = exporting.states_of(policy, None, 0)
    np.testing.assert_allclose(around.mean(axis=0), scaling.centre, atol=0.5)
    np.testing.assert_allclose(around.std(axis=0), scaling.spread, rtol=0.1)
    plain = exporting.states_of(policy_of("bc", scaled=False), None, 0)
    assert plain.shape == (1_000, 4)
    assert abs(plain.std() - 1) < 0.1


def without_clip(graph_: graph.Graph, observations: str, noise: str) -> str:
    return graph_.add("Tanh", graph_.network("decoder", graph.beside(graph_, observations, noise)))


def test_a_file_that_differs_from_the_learner_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, dataset = make_run(tmp_path, "vae-bc")
    monkeypatch.setitem(graph.KINDS, "sample", without_clip)
    path = tmp_path / "policy.onnx"
    with pytest.raises(InputError, match=r"differs from the learner by .* nothing was written"):
        export_policy(run, path, dataset=dataset, mode="noise-input")
    assert not path.exists()
    path.write_text("kept")
    with pytest.raises(InputError, match="differs from the learner"):
        export_policy(run, path, dataset=dataset, mode="noise-input", force=True)
    assert path.read_text() == "kept"
    monkeypatch.setattr(read_policy.Policy, "scaled", lambda self, numbers: numbers)
    with pytest.raises(InputError, match="differs from the learner"):
        export_policy(run, tmp_path / "policy.safetensors")
    assert names_in(tmp_path) == ["policy.onnx", "run"]


def test_a_difference_counts_unless_the_choice_is_a_near_tie() -> None:
    policy, made = policy_of("discrete-dqn"), content("discrete-dqn")
    expected = policy.act(states(50))[:, 0]

    def wrong_in_row_7(*_: Any) -> np.ndarray:
        return np.where(np.arange(50) == 7, (expected + 1) % 3, expected)

    assert compare(policy, made, wrong_in_row_7, states(50)) == Parity(50, 1.0, 0)
    nan: Callable[..., Any] = lambda *_: np.full(50, np.nan)  # noqa: E731
    assert compare(policy, made, nan, states(50)).largest == np.inf
    learner: Any = policy.learner
    tied = jax.tree.map(np.zeros_like, learner.network.model)
    flat = replace(policy, learner=eqx.tree_at(lambda one: one.network.model, learner, tied))
    zeros = np.zeros(50)
    assert compare(flat, made, lambda *_: zeros, states(50)) == Parity(50, 0.0, 0)
    assert compare(flat, made, lambda *_: 1 + zeros, states(50)) == Parity(50, 0.0, 50)
    assert "near-ties of the choice, left out: 50" in str(Parity(50, 0.0, 50))


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - {"vae-bc", "bc", "ddpg", "ensemble"}))
def test_a_margin_is_the_lead_of_the_best_choice(name: str) -> None:
    policy, rows = policy_of(name), states(200)
    noise = noise_drawn(policy.learner, 200, 0, 0)
    found = np.asarray(
        margins(policy.models, policy.scaled(rows), np.zeros(200) if noise is None else noise)
    )
    assert found.shape == (200,)
    assert (found >= 0).all()
    assert np.median(found) > 1e-4
    assert np.isfinite(found).mean() > 0.3


def test_a_diverged_policy_is_refused() -> None:
    policy = policy_of("bc")
    broken = jax.tree.map(lambda leaf: leaf * np.float32(np.nan), policy.learner)
    made = content("bc")
    with pytest.raises(InputError, match="has its training diverged"):
        compare(replace(policy, learner=broken), made, lambda *_: states(3)[:, :2], states(3))


def test_a_constant_dimension_stays_constant() -> None:
    policy = policy_of("bc")
    bounds = ActionBounds(np.array([2, 0]), np.array([2, 10]))
    fixed = replace(policy, task=replace(policy.task, bounds=bounds))
    made = content("bc", policy=fixed)
    assert (run_onnx(made, states(9))["action"][:, 0] == 2).all()
    act = files.actor_of(files.encode(made, ".onnx"), ".onnx")
    assert compare(fixed, made, act, states(9)).largest <= TOLERANCE


def test_rounding_does_not_lead_beyond_a_bound() -> None:
    low, high = np.random.default_rng(0).uniform([0.1, 0.5], [0.4, 0.9], (100, 2)).T
    tried = ActionBounds(low, high)
    below = int(np.argmax(tried.centre - tried.half_width < tried.low))
    above = int(np.argmax(tried.centre + tried.half_width > tried.high))
    places = [below, above]
    bounds = ActionBounds(low[places], high[places])
    unclipped = bounds.centre + np.array([-1, 1]) * bounds.half_width
    assert unclipped[0] < bounds.low[0]
    assert unclipped[1] > bounds.high[1]
    policy = policy_of("bc")
    learner: Any = policy.learner
    saturated = eqx.tree_at(
        lambda one: one.actor.model.network.layers[-1].bias, learner, np.array([-99, 99], "f4")
    )
    extreme = Policy(saturated, replace(policy.task, bounds=bounds))
    made = content("bc", policy=extreme)
    for found in (
        run_onnx(made, states(3))["action"],
        read_policy.Policy(*parts(made)).act(states(3)),
    ):
        assert (found == [bounds.low[0], bounds.high[1]]).all()


def test_the_command_writes_both_kinds_of_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, dataset = make_run(tmp_path)
    save(dataset, tmp_path / "batch.hdf5")
    for suffix in (".onnx", ".safetensors"):
        out = tmp_path / f"policy{suffix}"
        main(["export", str(run.directory), str(out), "--fallback", "-0.5", "2"])
        said = capsys.readouterr().out
        assert said.startswith(str(out))
        assert "checked on 1,000 states: it differs from the learner by at most" in said
        assert ("read_policy.py" in said) == (suffix == ".safetensors")
        refused("already exists; add --force", run.directory, out)
        main(
            ["export", str(run.directory), str(out), "--force", "--data", f"{tmp_path}/batch.hdf5"]
        )
        assert "checked on 300 states" in capsys.readouterr().out
        assert describe(out)["fallback"].startswith("[1.0, 5.0]")
    again = tmp_path / "again.safetensors"  # the same reader is no obstacle
    main(["export", str(run.directory), str(again)])
    (tmp_path / "read_policy.py").write_text("mine")
    refused(
        "read_policy.py: already exists, with another", run.directory, tmp_path / "c.safetensors"
    )
    assert (tmp_path / "read_policy.py").read_text() == "mine"
    arrays = safetensors.numpy.load_file(again)
    assert not any("encoder" in name or "target" in name for name in arrays)


def test_what_cannot_be_exported_is_refused_in_one_line(tmp_path: Path) -> None:
    run, dataset = make_run(tmp_path)
    folder, out = run.directory, tmp_path / "policy.onnx"
    refused("does not contain a run", tmp_path / "nothing", out)
    refused("give a run directory and the file to write", folder)
    refused("unknown kind of file; use .onnx or .safetensors", folder, tmp_path / "policy.pt")
    refused("no such folder", folder, tmp_path / "no" / "policy.onnx")
    refused("has the name of a checkpoint", folder, folder / "step-9.safetensors")
    refused("not an action between", folder, out, "--fallback", "1", "99")
    refused("a is no action", folder, out, "--fallback", "a")
    refused("seed: -1", folder, out, "--seed", "-1")
    other = replace(dataset, rewards=dataset.rewards + 1)
    save(other, tmp_path / "other.hdf5")
    refused("not the batch that", folder, out, "--data", tmp_path / "other.hdf5")
    refused("no such file", "--describe", tmp_path / "nothing.onnx")
    refused("takes one exported file and no run", folder, "--describe", out)
    refused("is not .onnx or .safetensors", "--describe", tmp_path / "other.hdf5")
    refused("is not an exported policy", "--describe", folder / "step-30.safetensors")
    for name in ("broken.onnx", "broken.safetensors", "empty.onnx"):
        (tmp_path / name).write_bytes(b"" if "empty" in name else b"\xff\x00broken" * 9)
        refused("is not an exported policy", "--describe", tmp_path / name)
    (tmp_path / "folder.onnx").mkdir()
    refused("is a folder", folder, tmp_path / "folder.onnx", "--force")
    assert not out.exists()


def test_a_run_that_learned_online_or_has_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    online, _ = make_run(
        tmp_path / "a", "ddpg", schedule=BehaviourSchedule(steps=10, env="Pendulum-v1", seed=0)
    )
    online.config = replace(online.config, dataset=OwnExperience("Pendulum-v1"))
    online.write_config()
    refused("learned online, not from a batch", online.directory, tmp_path / "policy.onnx")
    run, _ = make_run(tmp_path)
    (run.directory / "checkpoint.json").unlink()
    refused("has no checkpoint yet", run.directory, tmp_path / "policy.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_said_in_one_line_and_numpy_files_need_none(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = make_run(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    path = tmp_path / "policy.onnx"
    refused(
        f"the package {package}, which ONNX files need, is not installed; `pip install",
        run.directory,
        path,
    )
    assert not path.exists()
    main(["export", str(run.directory), str(tmp_path / "policy.safetensors")])


def test_nothing_but_an_onnx_file_loads_onnx() -> None:
    code = "import sys, bcq.cli.exporting; print([n for n in sys.modules if n[:4] == 'onnx'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_examples_in_python_of_the_documents_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TaskSpec(2, ActionBounds(np.array([0]), np.array([6])))
    learner = made_up(SMALL["bcq"], 2, 1, seed=0, scale=1.0)
    config = replace(configuration(SMALL["bcq"]), task=task)
    run = Run.create(tmp_path / "run", config)
    run.save(30, learner)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("policy.onnx", "policy.safetensors"):
        export_policy(run, Path(name))
    text = (Path(__file__).parent.parent / "docs" / "deploy.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(example, {})
    printed = capsys.readouterr().out
    assert "[ True False]" in printed
    assert printed.count("[3. ") == 2  # the middle of the range
    assert printed.rstrip().endswith("bcq")


def test_the_modes_are_the_two_that_the_documents_name() -> None:
    assert get_args(Mode) == ("deterministic", "noise-input")
