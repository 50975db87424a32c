import json
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from bcq.data.bounds import ActionBounds
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.inspection import as_text, picture, require_own, summary
from bcq.system.colours import BATCH_COLOUR, COLOURS
from bcq.system.errors import InputError

LOW, HIGH = np.array([-1, -2], np.float32), np.array([3, 0.5], np.float32)
# On the [-1, 1] scale: -1, 1, 0, 0.1, -0.5, 0.5, 0.9995 (at the bound), 0.995 (not quite).
FIRST_ACTION = [-1, 3, 1, 1.2, 0, 2, 2.999, 2.99]


def batch(**changes: Any) -> Dataset:
    """Eight rows: three that end of themselves, two cut by a limit, three unfinished."""
    arrays: dict[str, Any] = {
        "observations": np.zeros((8, 3)),
        "actions": np.stack([FIRST_ACTION, [-0.75] * 8], axis=1),
        "rewards": np.arange(1.0, 9.0),
        "next_observations": np.ones((8, 3)),
        "terminated": np.arange(8) == 2,
        "truncated": np.arange(8) == 4,
    }
    provenance = Provenance("Hopper-v5", "imperfect", "somebody", 3)
    columns = Columns("test", arrays | changes, provenance)
    return Dataset.from_columns(columns, ActionBounds(LOW, HIGH))


NO_ENDS = {"terminated": np.zeros(8, bool), "truncated": np.zeros(8, bool)}


# Figures


def test_sizes_and_ends_are_counted() -> None:
    figures = summary(batch())
    assert figures["transitions"] == 8
    assert (figures["observation_size"], figures["action_size"]) == (3, 2)
    assert (figures["action_low"], figures["action_high"]) == ([-1, -2], [3, 0.5])
    assert figures["episodes"] == {
        "complete": 2,
        "terminated": 1,
        "truncated": 1,
        "unfinished": 1,
    }
    assert figures["simulator_states"] is False
    states = {"qpos": np.zeros((8, 1)), "qvel": np.zeros((8, 1))}
    assert summary(batch(**states))["simulator_states"] is True


def test_returns_lengths_and_rewards_are_those_computed_by_hand() -> None:
    figures = summary(batch())
    assert figures["returns"] == pytest.approx(
        {  # of 1 + 2 + 3 and 4 + 5
            **{"mean": 7.5, "std": 1.5, "0%": 6, "10%": 6.3, "25%": 6.75, "50%": 7.5},
            **{"75%": 8.25, "90%": 8.7, "100%": 9},
        }
    )
    assert figures["lengths"] == pytest.approx(
        {
            **{"mean": 2.5, "std": 0.5, "0%": 2, "10%": 2.1, "25%": 2.25, "50%": 2.5},
            **{"75%": 2.75, "90%": 2.9, "100%": 3},
        }
    )
    assert figures["rewards"] == pytest.approx(
        {
            **{"mean": 4.5, "std": 5.25**0.5, "0%": 1, "10%": 1.7, "25%": 2.75, "50%": 4.5},
            **{"75%": 6.25, "90%": 7.3, "100%": 8},
        }
    )


def test_actions_are_counted_between_their_bounds() -> None:
    actions = summary(batch())["actions"]
    assert actions["histogram"] == [
        [1, 0, 1, 0, 0, 2, 0, 1, 0, 3],
        [0, 0, 0, 0, 0, 8, 0, 0, 0, 0],
    ]
    assert actions["share_at_bounds"] == [3 / 8, 0]
    assert actions["mean"] == pytest.approx([sum(FIRST_ACTION) / 8, -0.75])
    assert actions["std"] == pytest.approx([np.std(FIRST_ACTION), 0], rel=1e-6)


def test_an_action_that_rounding_puts_past_a_bound_is_counted_at_it() -> None:
    actions = np.stack([np.full(8, 3.00001), np.full(8, -2.00001)], axis=1)
    figures = summary(batch(actions=actions))["actions"]
    assert [counts[9] for counts in figures["histogram"]] == [8, 0]
    assert [counts[0] for counts in figures["histogram"]] == [0, 8]
    assert figures["share_at_bounds"] == [1, 1]


def test_where_the_batch_comes_from_is_told() -> None:
    dataset = batch()
    figures = summary(dataset)
    assert figures["fingerprint"] == dataset.fingerprint
    assert figures["provenance"] == {
        **{"environment": "Hopper-v5", "recipe": "imperfect", "behaviour": "somebody"},
        **{"seed": 3, "version": None},
    }


def test_a_batch_that_ends_with_an_episode_has_none_unfinished() -> None:
    figures = summary(batch(truncated=np.isin(np.arange(8), (4, 7))))
    assert figures["episodes"] == {
        "complete": 3,
        "terminated": 1,
        "truncated": 2,
        "unfinished": 0,
    }
    assert figures["returns"]["100%"] == 21
    assert "unfinished" not in as_text(figures)


def test_a_batch_without_complete_episodes_has_no_returns_and_no_lengths() -> None:
    figures = summary(batch(**NO_ENDS))
    assert figures["returns"] is None
    assert figures["lengths"] is None
    assert figures["rewards"]["mean"] == 4.5
    assert figures["episodes"] == {
        "complete": 0,
        "terminated": 0,
        "truncated": 0,
        "unfinished": 1,
    }


@pytest.mark.parametrize("changes", [{}, NO_ENDS])
def test_the_figures_survive_json(changes: dict[str, Any]) -> None:
    figures = summary(batch(**changes))
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


# Text


def test_the_text_holds_the_figures() -> None:
    lines = as_text(summary(batch())).splitlines()
    words = [" ".join(line.split()) for line in lines]
    assert words[:5] == [
        "transitions 8",
        "observations 3 numbers",
        "actions 2 numbers, from [-1.0, -2.0] to [3.0, 0.5]",
        "episodes 2 complete: 1 terminated, 1 truncated; the last is unfinished",
        "simulator no states",
    ]
    assert "mean std 0% 10% 25% 50% 75% 90% 100%" in words
    assert "returns 7.5 1.5 6 6.3 6.75 7.5 8.25 8.7 9" in words
    assert "lengths 2.5 0.5 2 2.1 2.25 2.5 2.75 2.9 3" in words
    assert "rewards 4.5 2.291 1 1.7 2.75 4.5 6.25 7.3 8" in words
    assert "0 1.524 1.405 37.5% 12 0 12 0 0 25 0 12 0 38" in words
    assert "1 -0.750 0.000 0.0% 0 0 0 0 0 100 0 0 0 0" in words
    assert "environment Hopper-v5" in words
    assert "seed 3" in words
    assert not any(line.startswith("version") for line in words)
    assert words[-1] == f"fingerprint {batch().fingerprint[:16]}…"


def test_the_text_says_where_there_are_no_complete_episodes() -> None:
    words = [" ".join(line.split()) for line in as_text(summary(batch(**NO_ENDS))).splitlines()]
    assert "episodes 0 complete: 0 terminated, 0 truncated; the last is unfinished" in words
    assert "returns none" in words
    assert "lengths none" in words


# Picture


@pytest.mark.parametrize("changes", [{}, NO_ENDS, {"rewards": np.zeros(8)}])
def test_the_picture_is_a_png(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "batch.png"
    picture(batch(**changes), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[:2] == (450, 1350)
    for panel in np.array_split(pixels[..., :3], 3, axis=1):
        assert (panel < 0.5).any()  # something is drawn
    assert list(tmp_path.iterdir()) == [path]


def test_the_picture_shows_returns_in_order_their_spread_and_each_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panels: list[Any] = []

    def noted(figure: Figure, path: Path, **_: Any) -> None:
        panels.extend(figure.axes)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", noted)
    picture(batch(), tmp_path / "batch.png")
    order, spread, actions = panels
    names = [(axes.get_xlabel(), axes.get_ylabel()) for axes in panels]
    assert names[:2] == [("episode", "return"), ("return", "episodes")]
    assert names[2][1] == "share"
    (line,) = order.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 1], [6, 9])
    heights = [bar.get_height() for bar in spread.patches]
    assert (len(heights), sum(heights)) == (30, 2)
    assert (heights[0], heights[-1]) == (1, 1)
    assert list(spread.get_lines()[0].get_xdata()) == [7.5, 7.5]
    assert spread.get_title(loc="right") == "mean 8"
    first, second = (stairs.get_data() for stairs in actions.patches)
    assert len(first.values) == 20
    assert first.edges.tolist() == pytest.approx(np.arange(-10, 11) / 10)
    expected = np.zeros(20)  # of -1, 1, 0, 0.1, -0.5, 0.5 and two just below 1
    expected[[0, 10, 11, 5, 15]] = 1 / 8
    expected[19] = 3 / 8
    assert first.values.tolist() == pytest.approx(expected)
    assert second.values[10] == 1
    assert [text.get_text() for text in actions.get_legend().get_texts()] == ["0", "1"]
    assert actions.get_legend().get_title().get_text() == "dimension"
    assert names[2][0] == "action (bounds at ±1)"
    assert (line.get_linestyle(), line.get_marker()) == ("None", ".")  # points
    assert line.get_color() == COLOURS["bcq"]
    assert {bar.get_facecolor() for bar in spread.patches} == {to_rgba(COLOURS["bcq"])}
    assert spread.get_lines()[0].get_color() == BATCH_COLOUR


@pytest.mark.parametrize(
    ("first", "second", "bars"),
    [
        (-4e6, -4e6 + 6, 30),  # a difference of 1.5 in a million
        (4e6, 4e6 - 2, 1),  # of one in two million
        (-4e6, -4e6 + 2, 1),
        (0.0, 4e6, 30),
        (0.25, 0.25 + 2**-20, 30),
        (7.0, 7.0, 1),
        (0.0, 0.0, 1),
    ],
)
def test_returns_that_are_the_same_but_for_rounding_are_one_bar(
    first: float, second: float, bars: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def noted(figure: Figure, path: Path, **_: Any) -> None:
        counts.append(len(figure.axes[1].patches))
        path.touch()

    monkeypatch.setattr(Figure, "savefig", noted)
    picture(batch(rewards=np.array([first, 0, 0, second, 0, 0, 0, 0])), tmp_path / "batch.png")
    assert counts == [bars]


def test_an_action_past_a_bound_by_rounding_is_drawn_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[Any] = []

    def noted(figure: Figure, path: Path, **_: Any) -> None:
        drawn: Any = figure.axes[2].patches
        shares.extend(stairs.get_data().values.tolist() for stairs in drawn)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", noted)
    actions = np.stack([np.full(8, 3.00001), np.full(8, -2.00001)], axis=1)
    picture(batch(actions=actions), tmp_path / "batch.png")
    assert shares == [[0] * 19 + [1], [1] + [0] * 19]


def test_a_picture_may_replace_only_pictures_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "batch.jpeg"  # whatever its name, it is a PNG
    require_own(path)
    picture(batch(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    require_own(path)
    for foreign in (b"", b"a letter", b" " * 1_000 + b"bcq inspect"):
        path.write_bytes(foreign)
        with pytest.raises(InputError, match="is not a picture of this kind") as caught:
            require_own(path)
        assert caught.value.option == "picture"


def test_returns_that_differ_by_rounding_are_drawn(tmp_path: Path) -> None:
    dataset = batch(rewards=np.array([1, 2.0**-50, 0, 1, 0, 0, 0, 0]))
    assert np.ptp(dataset.episode_returns) == 2.0**-50
    path = tmp_path / "batch.png"
    picture(dataset, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*nowhere/batch\.png"):
        picture(batch(), tmp_path / "nowhere" / "batch.png")
