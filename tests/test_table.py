"""The table of returns, by hand."""

from dataclasses import replace

from bcq.paper.table import side_by_side, table
from test_claims import as_in_the_paper


def test_the_table_keeps_final_and_best_apart() -> None:
    runs = [
        replace(one, evaluations=[(0, [999.0]), (1, [10.0]), (2, [20.0]), (3, [30.0 * one.seed])])
        for one in as_in_the_paper()
        if (one.task, one.label, one.env) == ("imperfect", "bc", "Hopper-v5")
    ]
    rows = [line for line in table(runs).splitlines() if "| imperfect |" in line]
    assert len(rows) == 1
    row = "| Hopper-v5 | imperfect | 500 | bc | 60,000 | 3 | 20 (10, 20, 30) | 999 |"
    assert rows[0] == row


def test_runs_of_another_phi_have_rows_of_their_own() -> None:
    runs = [
        one
        for one in as_in_the_paper()
        if (one.task, one.label, one.env) == ("imitation", "bcq", "Hopper-v5")
    ]
    rows = table(runs).splitlines()[2:]
    assert [row.split(" | ")[3:6] for row in rows] == [
        ["bcq", "60,000", "3"],
        ["bcq, Phi 2", "60,000", "3"],
    ]


def test_averages_are_means_over_trials() -> None:
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imitation", "ddpg"))
    runs = [
        replace(
            run,
            seed=seed,
            batch={**(run.batch or {}), "mean_return": 100.0 * final},
            evaluations=[(0, [5 * final]), (1, [final]), (2, [final]), (3, [final])],
        )
        for seed, final in enumerate((1.0, 2.0, 9.0))
    ]
    (row,) = table(runs).splitlines()[2:]
    assert row == "| Hopper-v5 | imitation | 400 | ddpg | 60,000 | 3 | 4 (1, 2, 9) | 20 |"


def test_runs_of_other_lengths_have_rows_of_their_own() -> None:
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imitation", "ddpg"))
    other = replace(run, schedule={"steps": 100_000})
    rows = [line for line in table([run, other]).splitlines() if "ddpg" in line]
    assert ["| 60,000 |" in rows[0], "| 100,000 |" in rows[1]] == [True, True]


def test_the_table_is_one_in_markdown_and_in_order() -> None:
    runs = [one for one in as_in_the_paper() if one.label in ("bc", "ddpg") and one.seed == 0]
    header, line, *rows = table(runs[::-1]).splitlines()
    assert line == "|---|---|---|---|---|---|---|---|"
    assert {row.count("|") for row in (header, *rows)} == {line.count("|")}
    places = [tuple(row.split(" | ")[i] for i in (0, 1, 3)) for row in rows]
    assert places == sorted(places)
    assert len(set(places)) == len(places) > 10


def test_a_batch_without_returns_has_no_average() -> None:
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imitation", "ddpg"))
    unknown = {**(run.batch or {}), "mean_return": None}
    for runs in ([replace(run, batch=None)], [run, replace(run, seed=1, batch=unknown)]):
        (row,) = table(runs).splitlines()[2:]
        assert row.startswith("| Hopper-v5 | imitation |  | ddpg | 60,000 |")


def test_algorithms_stand_side_by_side_with_every_trial() -> None:
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imperfect", "bc"))
    batch = {**(run.batch or {}), "mean_return": 480.0}
    here = replace(run, batch=batch, evaluations=[(0, [9.0]), (1, [2.0]), (2, [4.0]), (3, [6.0])])
    there = replace(here, seed=1, evaluations=[(1, [7.0]), (2, [7.0]), (3, [10.0])])
    runs = [
        *(there, here),  # in any order
        replace(here, algorithm="bcq", settings={}),
        replace(here, env="Walker2d-v5", schedule={"steps": 30_000}),
        replace(here, experiments=["extrapolation"], schedule={"steps": 100_000}),
        replace(here, role="agent", schedule={"steps": 300_000}),
    ]
    header, line, *rows, empty = side_by_side(runs).splitlines()
    assert empty == ""  # else the next table is a part of this one
    assert header == "| batch | updates | its average | BCQ | DDPG | DQN | BC | VAE-BC |"
    assert line == "|---|---|---|---|---|---|---|---|"
    assert rows == [
        "| Hopper-v5, imperfect | 60,000 | 480 | 4 |  |  | 6 (4, 8) |  |",
        "| Walker2d-v5, imperfect | 30,000 | 480 |  |  |  | 4 |  |",
    ]


def test_runs_of_other_figures_alone_have_no_table_side_by_side() -> None:
    runs = [one for one in as_in_the_paper() if one.task == "random"]
    assert runs
    assert side_by_side(runs) == ""
