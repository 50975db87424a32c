"""Logs of one's own on the command line: inspected, mended, converted, learned from."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

import bcq
from bcq.cli.application import main
from conftest import ROWS, BatchFile

TINY = ("--hidden-sizes", "8", "--vae-hidden-sizes", "8", "--steps", "100")


pytestmark = pytest.mark.usefixtures("own_compilation_cache")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


def failure(*arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return str(caught.value.code)


# Inspecting


def test_everything_wrong_is_in_one_report(
    batch_file: BatchFile, capsys: pytest.CaptureFixture[str]
) -> None:
    rewards = np.zeros(ROWS)
    rewards[[3, 17]] = np.nan
    actions = np.zeros((ROWS, 1))
    actions[5] = 3
    path = str(batch_file(rewards=rewards, actions=actions))
    message = failure("inspect", path, "--json")
    assert message == f"bcq: {path}: cannot be used for training (errors: 2)"
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(f["kind"], f["rows"], f["count"]) for f in found if f["severity"] == "error"] == [
        ("not-finite", [3, 17], 2),
        ("out-of-bounds", [5], 1),
    ]
    assert {"constant-column", "constant-rewards"} <= {f["kind"] for f in found}
    failure("inspect", path)
    printed = capsys.readouterr().out
    assert "2 errors" in printed
    assert "rewards: is nan (one of 2 values that are not finite) [rows 3, 17]" in printed
    assert "-> remove or repair these rows, or set missing" in printed
    assert "; `bcq inspect --fix` does this\n" in printed
    assert not Path(path).with_suffix(".png").exists()


def test_a_mended_file_is_new_and_sound(
    batch_file: BatchFile, capsys: pytest.CaptureFixture[str]
) -> None:
    rewards = np.arange(ROWS, dtype=float)
    rewards[17] = np.inf
    path = batch_file(rewards=rewards)
    before = path.read_bytes()
    main(["inspect", str(path), "--fix", "mended.hdf5"])
    printed = capsys.readouterr()
    assert "1 error" in printed.out
    assert printed.err.endswith(f"bcq: mended.hdf5: {ROWS - 1} transitions of {ROWS} rows\n")
    assert path.read_bytes() == before
    mended = bcq.load("mended.hdf5")
    assert mended.rewards.tolist() == [row for row in range(ROWS) if row != 17]
    assert mended.truncated[16]
    capsys.readouterr()
    main(["inspect", "mended.hdf5"])
    assert "no errors" in capsys.readouterr().out
    assert "already exists" in failure("inspect", str(path), "--fix", "mended.hdf5")


def test_a_file_without_a_field_cannot_be_repaired(here: Path) -> None:
    with h5py.File("short.hdf5", "w") as file:
        file["observations"] = np.zeros((5, 2))
    message = failure("inspect", "short.hdf5", "--fix", "mended.hdf5")
    assert message.startswith("bcq: short.hdf5: actions: is missing")
    assert not (here / "mended.hdf5").exists()


def test_a_picture_of_someone_else_is_kept(
    batch_file: BatchFile, capsys: pytest.CaptureFixture[str]
) -> None:
    path = batch_file()
    own = path.with_suffix(".png")
    own.write_bytes(b"\x89PNG of a holiday")
    message = failure("inspect", str(path))
    assert message.startswith(f"bcq: {own}: already exists and is not a picture of this kind")
    assert message.endswith("--picture")
    assert own.read_bytes() == b"\x89PNG of a holiday"
    assert capsys.readouterr().out == ""
    main(["inspect", str(path), "--picture", "other.png"])
    drawn = Path("other.png").read_bytes()
    main(["inspect", str(path), "--picture", "other.png"])  # its own picture is drawn again
    assert Path("other.png").read_bytes() == drawn


def test_an_environment_that_does_not_exist_is_refused(batch_file: BatchFile) -> None:
    path = str(batch_file())
    for words in (["inspect", path], ["convert", path, "new.hdf5"]):
        assert "environment Pendulun-v1: " in failure(*words, "--env", "Pendulun-v1")
    assert not Path("new.hdf5").exists()


LOG = "day,t,power,pay,obs_0\n" + "".join(
    f"{day},{20 + hour / 7:.2f},{hour % 5 - 2},{hour % 3},{hour * day:.1f}\n"
    for day in range(40)
    for hour in range(24)
)
ROLES = ["episode=day", "observations=t,obs_0", "actions=power", "rewards=pay"]


def test_the_columns_that_were_used_are_always_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("log.csv").write_text(LOG)
    reading = ["--columns", *ROLES, "--action-margin", "0"]
    main(["inspect", "log.csv", *reading, "--json"])
    told = json.loads(capsys.readouterr().out)["columns"]
    assert told == {role: names.split(",") for role, _, names in (r.partition("=") for r in ROLES)}
    main(["inspect", "log.csv", *reading])
    assert f"columns        {' '.join(ROLES)}\n" in capsys.readouterr().out
    main(["convert", "log.csv", "log.hdf5", *reading])
    assert f"bcq: columns: {' '.join(ROLES)}\n" in capsys.readouterr().err
    main(["train", "bc", "--data", "log.csv", *reading, "--steps", "1", "--hidden-sizes", "4", "4"])
    assert f"bcq: columns: {' '.join(ROLES)}\n" in capsys.readouterr().err
    main(["inspect", "log.hdf5", "--json"])
    assert json.loads(capsys.readouterr().out)["columns"] == {}


def test_reading_a_large_table_shows_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bcq.system.progress.EVERY", 0.0)
    Path("log.csv").write_text(LOG)
    reading = ["--columns", *ROLES, "--action-margin", "0"]
    main(["inspect", "log.csv", *reading])
    said = capsys.readouterr().err
    size = len(LOG)
    for words in (
        f"reading log.csv: {size:,} of {size:,} bytes",
        "loading log.csv: 960 of 960 rows",
        "checking the batch: 17 of 17 checks",
    ):
        assert words in said
    main(["convert", "log.csv", "log.hdf5", *reading])
    assert "converting log.csv: 1 of 1 parts" in capsys.readouterr().err


def test_a_column_named_t_is_not_taken_for_the_step() -> None:
    Path("log.csv").write_text(LOG.replace("day", "episode"))
    columns = {"actions": ["power"], "rewards": ["pay"]}
    dataset = bcq.load("log.csv", columns=columns, action_margin=0)
    assert len(dataset) == 40 * 23  # 40 episodes without their last row


def test_whole_days_are_all_complete(capsys: pytest.CaptureFixture[str]) -> None:
    Path("log.csv").write_text(LOG)
    main(["inspect", "log.csv", "--columns", *ROLES, "--action-margin", "0", "--json"])
    episodes = json.loads(capsys.readouterr().out)["episodes"]
    assert episodes == {"complete": 40, "terminated": 0, "truncated": 40, "unfinished": 0}


def test_findings_name_the_columns_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LOG.splitlines()
    Path("log.csv").write_text("\n".join([f"{lines[0]},fixed", *(f"{x},7" for x in lines[1:])]))
    roles = [role.replace("obs_0", "fixed,obs_0") for role in ROLES]
    main(["inspect", "log.csv", "--columns", *roles, "--action-margin", "0"])
    assert "observations: constant column fixed" in capsys.readouterr().out


def test_a_role_is_given_once() -> None:
    Path("log.csv").write_text(LOG)
    message = failure("inspect", "log.csv", "--columns", "observations=t", "observations=obs_0")
    assert message == (
        "bcq: columns: observations is given twice; separate its columns with commas"
    )


@pytest.mark.parametrize("row", [0, 3, 900])
def test_a_cell_that_is_not_a_number_is_named_with_its_row(row: int) -> None:
    lines = LOG.splitlines()
    lines[row + 1] = lines[row + 1].rpartition(",")[0] + ",n/k"
    Path("log.csv").write_text("\n".join(lines))
    message = failure("inspect", "log.csv", "--columns", *ROLES)
    words = f"observations, row {row}: obs_0 is 'n/k', not a number; correct the cell"
    assert message.startswith(f"bcq: log.csv: {words}")


def test_the_report_is_between_the_figures_and_the_picture(
    batch_file: BatchFile, capsys: pytest.CaptureFixture[str]
) -> None:
    path = batch_file()
    main(["inspect", str(path)])
    lines = [line.split(" ")[0] for line in capsys.readouterr().out.splitlines() if line]
    assert lines.index("transitions") < lines.index("doctor") < lines.index("picture")
    assert path.with_suffix(".png").exists()


# Converting


def test_a_batch_goes_through_every_format(batch_file: BatchFile) -> None:
    path = str(batch_file())
    bounds = ["--action-low", "-1", "--action-high", "1"]
    main(["convert", path, "minari:space/log-v0", "--env", "Pendulum-v1", *bounds])
    main(["convert", "minari:space/log-v0", "log-v1"])
    main(["convert", "log-v1", "again.hdf5"])
    assert bcq.load("again.hdf5").fingerprint == bcq.load(path).fingerprint
    assert bcq.load("again.hdf5").provenance.environment == "Pendulum-v1"
    main(["inspect", "minari:space/log-v0"])
    assert Path("log-v0.png").exists()
    assert "already exists" in failure("convert", path, "minari:space/log-v0")
    assert "unknown ending; use one of" in failure("convert", path, "log.csv")
    assert "is not a Minari" in failure("convert", path, "minari:../out-v0")


def test_what_reading_brings_to_light_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"1,{step},{step % 7},0.5,1\n" for step in (0, 1, 3, 2, 6, 7))
    Path("log.csv").write_text("episode,step,obs_0,action_0,reward\n" + rows)
    main(["convert", "log.csv", "log.hdf5", "--env", "Pendulum-v1"])
    printed = capsys.readouterr()
    assert "bcq: note: log.csv: rows, row 2: 2 rows were not in order" in printed.err
    assert "bcq: warning: log.csv: step, row 2: rows are missing after 1 rows" in printed.err
    assert "bcq: warning: log.csv: terminated: no column marks" in printed.err
    assert printed.out.startswith("log.hdf5: 4 transitions")
    with h5py.File("log.hdf5") as file:
        assert file.attrs["environment"] == "Pendulum-v1"


def test_columns_are_for_files_that_have_names_of_their_own(batch_file: BatchFile) -> None:
    message = failure("convert", str(batch_file()), "log.hdf5", "--columns", "rewards=gain")
    assert "columns is for tables and npz" in message


# Training


def test_warnings_come_before_training_one_a_line(
    batch_file: BatchFile, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(batch_file(next_observations=np.random.default_rng(1).normal(size=(ROWS, 3))))
    main(["train", "bcq", "--data", path, *TINY])
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        f"bcq: warning: {path}: next_observations, row 0: 36 rows within episodes differ"
    )


def test_bounds_of_any_kind_are_learned_within() -> None:
    """Unequal, not symmetric, and one dimension that never moves."""
    generator = np.random.default_rng(0)
    observations = generator.normal(size=(301, 2)).astype(np.float32)
    actions = np.stack([generator.uniform(100, 900, 300), np.full(300, -7.0)], axis=1)
    np.savez(
        "log.npz",
        obs=observations[:-1],
        next_obs=observations[1:],
        act=actions,
        rew=generator.normal(size=300),
        terminals=np.zeros(300),
    )
    train = ("train", "bcq", "--data", "log.npz", "--action-margin", "0.05", "--out", "run", *TINY)
    main(train)
    policy = bcq.Run.open(Path("run")).policy()
    proposed = policy.act(generator.normal(size=(50, 2)) * 100)
    low, high = policy.task.bounds.low, policy.task.bounds.high
    span = np.ptp(actions[:, 0])
    np.testing.assert_allclose(
        [low[0], high[0]],
        [actions[:, 0].min() - 0.05 * span, actions[:, 0].max() + 0.05 * span],
        rtol=1e-6,
    )
    assert (proposed >= low).all()
    assert (proposed <= high).all()
    assert (proposed[:, 1] == -7).all()
    assert "give one or the other" in failure(*train, "--action-low", "0", "--action-high", "1")
