"""`bcq reproduce`: the smoke preset whole, records, figures, table, bad input."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from bcq.cli.application import main
from bcq.experiments import engines, runner
from bcq.experiments.kinds import Training
from bcq.experiments.records import aligned, read_records, returns, write_records
from bcq.paper import drawing, figures, reproduce
from bcq.paper.figure_1_extrapolation import figure_1
from bcq.paper.figure_2_results import figure_2
from bcq.paper.figure_3_values import figure_3
from bcq.paper.presets import Plan, Preset
from bcq.paper.verdicts import CLAIMS
from bcq.simulation import true_values
from bcq.system.colours import COLOURS
from bcq.tabular.theorems import STATEMENTS
from test_claims import THEORY, as_in_the_paper
from test_runner import InThisProcess


@contextmanager
def small_networks() -> Iterator[pytest.MonkeyPatch]:
    """The algorithms of every job with few weights: here they learn nothing anyway."""
    training = Preset.training

    def smaller(preset: Preset, config: Any, plan: Plan, trial: int) -> Training:
        names = ("hidden_sizes", "vae_hidden_sizes")
        sizes = {name: (8,) for name in names if hasattr(config, name)}
        return training(preset, replace(config, **sizes), plan, trial)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Preset, "training", smaller)
        yield patch


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In this process, where what was compiled for one job serves the next."""
    out = tmp_path_factory.mktemp("reproduction") / "smoke"
    with small_networks() as patch:
        patch.setattr(engines, "LocalProcesses", InThisProcess)
        patch.setattr(runner, "POLL", 0.0)
        patch.setattr(true_values, "PAIRS", 5)
        patch.setattr(true_values, "HORIZON", 20)
        main(["reproduce", "--preset", "smoke", "--out", str(out)])
    return out


def test_smoke_runs_every_part(smoke: Path) -> None:
    records = read_records(smoke / "runs.jsonl")
    found = {(one.task, one.label) for one in records}
    tasks = ("final-buffer", "concurrent", "imitation", "imperfect")
    assert {
        (task, name) for task in tasks for name in ("bcq", "ddpg", "dqn", "bc", "vae-bc")
    } < found
    assert {("random", "bcq"), ("random", "ddpg"), ("random", "bc")} < found
    assert {("final-buffer", "behaviour"), ("concurrent", "behaviour")} < found
    assert {("imitation", "ensemble of 2"), ("imitation", "ensemble of 3")} < found
    for one in records:
        assert len(one.evaluations) >= 2
        assert (len(one.truths) > 0) == (one.label not in ("bc", "vae-bc", "behaviour"))
        assert ("action_distance" in one.measures) == (one.role == "learner")
    for name in ("extrapolation-Hopper-v5", "results", "values", "perturbation-Hopper-v5"):
        for ending in ("png", "pdf"):
            assert (smoke / "figures" / f"{name}.{ending}").stat().st_size > 5_000
    assert (smoke / "figures" / "uncertainty-Hopper-v5.png").exists()
    assert (smoke / "figures" / "random-Pendulum-v1.png").exists()
    claims = (smoke / "claims.md").read_text()
    assert all(claim.quote in claims for claim in CLAIMS)
    theory = len(STATEMENTS) + 1  # and the counterexample; one trial proves no more
    assert claims.count("**holds**") == theory


def test_a_second_call_repeats_nothing(smoke: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (smoke / "jobs").rglob("*.safetensors")}
    records = (smoke / "runs.jsonl").read_bytes()
    with small_networks() as patch:
        patch.setattr(figures, "draw_all", lambda *_: [])
        main(["reproduce", "--preset", "smoke", "--out", str(smoke)])
    assert "done    " not in capsys.readouterr().out
    assert before == {p: p.stat().st_mtime_ns for p in (smoke / "jobs").rglob("*.safetensors")}
    assert (smoke / "runs.jsonl").read_bytes() == records


def test_check_needs_nothing_but_the_two_small_files(
    smoke: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("runs.jsonl", "theory.json"):
        (tmp_path / name).write_bytes((smoke / name).read_bytes())
    main(["reproduce", "--check", "--out", str(tmp_path)])
    assert "Theorem 4" in capsys.readouterr().out
    for name in ("claims.md", "table.md"):
        assert (tmp_path / name).read_text() == (smoke / name).read_text()
    for path in (smoke / "figures").iterdir():
        assert (tmp_path / "figures" / path.name).read_bytes() == path.read_bytes()


def test_dry_run_lists_the_jobs_and_runs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "dry"
    main(["reproduce", "extrapolation", "--preset", "smoke", "--dry-run", "--out", str(out)])
    printed = capsys.readouterr().out
    for name in ("behaviour-Hopper-v5-noise0.5", "batch-imitation-Hopper-v5", "ddpg-concurrent"):
        assert name in printed
    assert "8 jobs in Hopper-v5: about" in printed
    assert "GB in" in printed
    assert not out.exists()


def test_records_survive_their_file(tmp_path: Path) -> None:
    records = as_in_the_paper()
    write_records(records, tmp_path / "runs.jsonl")
    again = read_records(tmp_path / "runs.jsonl")
    assert sorted(map(str, again)) == sorted(map(str, records))


@pytest.mark.parametrize(
    "content", ["not json\n", '{"format": 2, "task": "x"}\n', '{"format": 1}\n']
)
def test_a_damaged_file_of_records_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "runs.jsonl").write_text(content)
    with pytest.raises(SystemExit, match=r"runs\.jsonl: (is not a file|does not have the format) "):
        main(["reproduce", "--check", "--out", str(tmp_path)])


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="does not contain results"):
        main(["reproduce", "--check", "--out", str(tmp_path / "nowhere")])


def test_what_a_preset_does_not_have_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is not in this preset; it has Hopper-v5, Pendulum-v1"):
        main(["reproduce", "--preset", "smoke", "--env", "Ant-v5", "--out", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_every_figure_is_drawn_in_the_colour_of_its_algorithm(tmp_path: Path) -> None:
    records = [one for one in as_in_the_paper() if one.env == "Hopper-v5"]
    figure = figure_2(records)
    assert figure is not None
    for axes in figure.axes:
        for line in axes.get_lines():
            label = str(line.get_label())
            if label in drawing.NAMES.values():
                name = next(key for key, value in drawing.NAMES.items() if value == label)
                assert line.get_color() == COLOURS[name]
    figures.draw_all(records, tmp_path)
    assert len(list(tmp_path.iterdir())) == 10


def test_each_environment_has_a_row_with_its_four_tasks() -> None:
    figure = figure_2(as_in_the_paper())
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == [
        f"{env}: {task}"
        for env in ("Hopper-v5", "HalfCheetah-v5")
        for task in ("final-buffer", "concurrent", "imitation", "imperfect")
    ]


def lines_of(axes: Axes) -> dict[str, list[float]]:
    return {
        str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()
    }


def test_the_shaded_area_is_half_a_standard_deviation_over_trials() -> None:
    records = [one for one in as_in_the_paper() if one.env == "Hopper-v5"]
    finals = [one.final for one in records if (one.task, one.label) == ("imperfect", "bcq")]
    finals = [r for r in finals if r > 100]  # not those of a large Phi
    figure = figure_2(records)
    assert figure is not None
    axes = figure.axes[3]
    assert lines_of(axes)["BCQ"][-1] == pytest.approx(np.mean(finals))
    edges = np.asarray(axes.collections[0].get_paths()[0].vertices)[:, 1]
    half = np.std(finals) / 2
    assert edges.max() == pytest.approx(np.mean(finals) + half)
    assert np.abs(edges - (np.mean(finals) - half)).min() == pytest.approx(0, abs=1e-6)


def test_figure_1_has_agent_batch_and_truth() -> None:
    figure = figure_1([one for one in as_in_the_paper() if one.env == "Hopper-v5"])
    assert figure is not None
    above, below = figure.axes[1], figure.axes[4]  # concurrent
    assert above.get_title() == "concurrent"
    assert lines_of(above)["the batch"][0] == 500
    assert lines_of(above)["behavioural agent"][-1] == pytest.approx(800 * 1.0033, 1e-3)
    assert lines_of(below)["DDPG, true value"] == [100, 100, 100]
    estimates = lines_of(below)["DDPG"]
    assert estimates[-1] == pytest.approx(250 * 1.0033, rel=1e-3)


def test_figure_3_draws_the_estimate_of_each_and_the_truth_of_bcq() -> None:
    figure = figure_3([one for one in as_in_the_paper() if one.env == "Hopper-v5"])
    assert figure is not None
    lines = lines_of(figure.axes[2])
    assert lines["BCQ, true value"] == [100, 100, 100]
    assert lines["BCQ"][-1] == pytest.approx(110 * 1.0033, rel=1e-3)
    assert lines["DQN"][-1] == pytest.approx(300 * 1.0033, rel=1e-3)
    assert "DDPG, true value" not in lines


def test_the_mean_of_a_figure_is_over_trials() -> None:
    records = [
        one
        for one in as_in_the_paper()
        if (one.task, one.algorithm, one.env) == ("imperfect", "bc", "Hopper-v5")
    ]
    steps, means = aligned(map(returns, records))
    assert steps.tolist() == [0, 10_000, 15_000, 20_000, 40_000, 50_000, 60_000]
    assert means[:, -1].tolist() == pytest.approx([410 * 0.98, 410, 410 * 1.03])


def test_claims_are_counted_when_they_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "draw_all", lambda *_: [])
    write_records(as_in_the_paper(), tmp_path / "runs.jsonl")
    (tmp_path / "theory.json").write_text(json.dumps(THEORY))
    reproduce.show(tmp_path)
    printed = capsys.readouterr().out
    assert f"holds: {len(CLAIMS)}, does not hold: 0" in printed
    runs = len(as_in_the_paper())
    assert f"{runs} runs in {tmp_path / 'runs.jsonl'}; 0 figures are next to it\n" in printed
