"""A first mapping for a table, guessed from the names of its columns."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bcq
from bcq.cli.application import main
from bcq.data.formats.mapping import parse_columns
from bcq.data.formats.suggestion import suggest

HEATING = "day,minute,inside,outside,kilowatts,comfort,frozen,note\n0,0,20.5,3,1.5,-1,0,fine\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mapping_of(header: str) -> dict[str, tuple[str, ...]]:
    """What is guessed for numbers with these names."""
    Path("log.csv").write_text(f"{header}\n" + ",".join("1" for _ in header.split(",")) + "\n")
    text = suggest(Path("log.csv"))
    Path("guess.toml").write_text(text)
    return parse_columns(["guess.toml"])[0]


def test_the_mapping_of_the_readme_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("heating.csv").write_text(HEATING)
    main(["inspect", "heating.csv", "--suggest", "maps/heating.toml"])
    assert Path("maps/heating.toml").read_text() == (
        "# Guessed from the names of the columns of heating.csv: check every line.\n"
        "# Observations are known before the action is chosen. A reward is earned by the action.\n"
        'episode = "day"\n'
        'step = "minute"\n'
        'observations = ["inside", "outside"]\n'
        'actions = ["kilowatts"]\n'
        'rewards = "comfort"\n'
        'terminated = "frozen"\n'
        "# Not used: note (string)\n"
    )
    printed = capsys.readouterr().out
    assert printed.endswith("edit it, then use it with --columns maps/heating.toml\n")
    assert not Path("heating.png").exists()


def test_common_names_come_first() -> None:
    assert mapping_of("cost,reward,time,step,obs_0,obs_1,action_0,power,episode") == {
        "episode": ("episode",),
        "step": ("step",),
        "observations": ("obs_0", "obs_1"),
        "actions": ("action_0",),
        "rewards": ("reward",),
    }


def test_words_are_whole_words_of_any_case() -> None:
    found = mapping_of("Patient_ID,Measured_at_Hour,Heart rate,Doses,consideration,Total-Cost")
    assert found == {
        "episode": ("Patient_ID",),
        "step": ("Measured_at_Hour",),
        "observations": ("Heart rate", "consideration"),  # not an id
        "actions": ("Doses",),
        "rewards": ("Total-Cost",),
    }


def test_what_is_not_found_must_be_filled_in() -> None:
    assert mapping_of("a,b") == {"observations": ("a", "b"), "actions": (), "rewards": ()}
    with pytest.raises(bcq.InputError, match="actions: is missing"):
        bcq.load("log.csv", columns=mapping_of("a,b"))


def test_text_can_only_name_episodes_and_steps() -> None:
    table = {"run": ["a"], "date": ["2024-03-01"], "action": ["up"], "power": ["on"], "x": [1.0]}
    pq.write_table(pa.table(table), "log.parquet")
    text = suggest(Path("log.parquet"))
    assert 'episode = "run"\nstep = "date"\nobservations = ["x"]\n' in text
    assert "# Not used: power (string)\n" in text


@pytest.mark.parametrize(
    ("data", "target", "words"),
    [
        ("log.npz", "new.toml", "log.npz: is not a table; only .csv and .parquet need a mapping"),
        ("log.csv", "old.toml", "old.toml: must be a new file with the ending .toml"),
        ("log.csv", "new.txt", "new.txt: must be a new file with the ending .toml"),
        ("none.csv", "new.toml", "none.csv: no such file"),
        ("empty.csv", "new.toml", "empty.csv: cannot be read as CSV: "),
    ],
)
def test_what_cannot_be_mapped_is_refused(data: str, target: str, words: str, here: Path) -> None:
    for name, text in (
        ("log.npz", ""),
        ("log.csv", HEATING),
        ("old.toml", "old"),
        ("empty.csv", ""),
    ):
        Path(name).write_text(text)
    with pytest.raises(SystemExit, match=words):
        main(["inspect", data, "--suggest", target])
    assert Path("old.toml").read_text() == "old"
    assert not (here / "new.toml").exists()


def test_a_column_of_names_can_be_the_action() -> None:
    header = (
        "patient,hour,pressure,treatment,control,health_score,permitted_a,permitted_b,propensity"
    )
    cells = "P1,1,120,a,b,0.5,1,1,0.25"
    Path("log.csv").write_text(f"{header}\n{cells}\n")
    Path("guess.toml").write_text(suggest(Path("log.csv")))
    assert parse_columns(["guess.toml"])[0] == {
        "episode": ("patient",),
        "step": ("hour",),
        "observations": ("pressure",),
        "actions": ("treatment",),
        "rewards": ("health_score",),
        "permitted": ("permitted_a", "permitted_b"),
        "propensities": ("propensity",),
    }


def test_a_telling_word_may_stand_anywhere_in_a_name() -> None:
    header = "my_episode,timestamp_utc,mean_reward,is_terminated,was_truncated,chosen action,level"
    assert mapping_of(header) == {
        "episode": ("my_episode",),
        "step": ("timestamp_utc",),
        "observations": ("level",),
        "actions": ("chosen action",),
        "rewards": ("mean_reward",),
        "terminated": ("is_terminated",),
        "truncated": ("was_truncated",),
    }


def test_one_of_two_telling_columns_is_taken_and_the_other_is_a_number_like_any() -> None:
    found = mapping_of("day,run,cost,profit,level,power,valve")
    assert found == {
        "episode": ("day",),
        "observations": ("run", "profit", "level"),
        "actions": ("power", "valve"),
        "rewards": ("cost",),
    }


def test_states_of_a_simulator_and_what_comes_next_are_no_observations() -> None:
    found = mapping_of("level,my_qpos,qpos_0,qvel_0,next_level,next_cost,power,pay")
    assert found["observations"] == ("level", "my_qpos")
    assert found["rewards"] == ("pay",)
    assert (
        "# Not used: qpos_0 (int64), qvel_0 (int64), next_level (int64), next_cost (int64)\n"
        in (Path("guess.toml").read_text())
    )


def test_columns_of_another_kind_have_no_role() -> None:
    table = {"run": [[1]], "date": [[1]], "score": ["good"], "power": [[1.0]], "x": [1.0]}
    pq.write_table(pa.table(table), "log.parquet")
    lines = suggest(Path("log.parquet")).splitlines()[2:]
    assert lines[0] == 'observations = ["x"]'
    assert lines[1:3] == [
        f"{role} = []  # not found: name at least one column" for role in ("actions", "rewards")
    ]
    assert [words.split()[0] for words in lines[3].removeprefix("# Not used: ").split(", ")] == [
        *("run", "date", "score", "power")
    ]
