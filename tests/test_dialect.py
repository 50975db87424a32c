"""CSV as other programs write it: byte-order marks, semicolons and decimal commas."""

from pathlib import Path

import pytest

import bcq
from bcq.cli.application import main
from bcq.data.formats import arrow
from bcq.data.formats.dialect import Dialect, dialect_of
from bcq.data.opening import Options
from bcq.data.saving import convert
from refusals import refusal

# Rows of one episode, as German or French Excel exports them.
EXCEL = """episode;step;obs_0;obs_1;action_0;reward;terminated
1;0,5;1,25;-3;0,5;1e-1;0
1;1,0;"2,5";4,75;-0,25;2;0
1;1,5;3;1e3;,125;-7,5;1
"""
PLAIN = """episode,step,obs_0,obs_1,action_0,reward,terminated
1,0.5,1.25,-3,0.5,1e-1,0
1,1.0,2.5,4.75,-0.25,2,0
1,1.5,3,1e3,.125,-7.5,1
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "log.csv"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\n\r\n", b"\xef\xbb\xbf\r\n"])
@pytest.mark.parametrize("text", [PLAIN, EXCEL, EXCEL.replace("\n", "\r\n")])
def test_the_same_log_is_read_however_it_is_written(log: Path, mark: bytes, text: str) -> None:
    log.write_bytes(mark + text.encode())
    dataset = bcq.load(log)
    assert dataset.observations.tolist() == [[1.25, -3], [2.5, 4.75], [3, 1000]]
    assert dataset.actions.tolist() == [[0.5], [-0.25], [0.125]]
    assert [round(reward, 6) for reward in dataset.rewards.tolist()] == [0.1, 2, -7.5]
    assert dataset.next_observations.tolist() == [[2.5, 4.75], [3, 1000], [3, 1000]]
    assert dataset.terminated.tolist() == [False, False, True]


def test_the_first_column_has_its_name_without_the_mark(log: Path) -> None:
    log.write_bytes(b"\xef\xbb\xbf" + PLAIN.replace("episode", "Lauf Nr.").encode())
    assert len(bcq.load(log, columns={"episode": ["Lauf Nr."]})) == 3


def test_every_verb_reads_it(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(b"\xef\xbb\xbf" + EXCEL.encode())
    main(["inspect", "log.csv", "--suggest", "map.toml"])
    assert 'episode = "episode"\nstep = "step"\nobservations = ["obs_0", "obs_1"]\n' in (
        capsys.readouterr().out
    )
    main(["convert", "log.csv", "log.hdf5"])
    converted = bcq.load("log.hdf5")
    assert converted.observations.tolist() == [[1.25, -3], [2.5, 4.75], [3, 1000]]
    main(["inspect", "log.csv"])
    assert "transitions    3\n" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("suggested", [False, True])
def test_utf_16_is_refused_with_what_to_do(log: Path, encoding: str, suggested: bool) -> None:
    mark = "" if encoding == "utf-16" else "\ufeff"
    log.write_bytes((mark + PLAIN).encode(encoding))
    words = "log.csv: is UTF-16 text; save it as UTF-8"
    with pytest.raises(SystemExit, match=words):
        main(["inspect", "log.csv", *(["--suggest", "map.toml"] if suggested else [])])


def test_other_encodings_of_names_are_refused_and_those_of_notes_are_not(log: Path) -> None:
    log.write_bytes(PLAIN.replace("obs_0", "außen").encode("cp1252"))
    assert "its first line is not UTF-8 text; save it as UTF-8" in refusal(log)
    noted = "\n".join(f"{line},ä" for line in PLAIN.splitlines()).replace(",ä", ",note", 1)
    log.write_bytes(noted.encode("cp1252"))
    assert len(bcq.load(log)) == 3


def test_names_with_the_other_separator_need_quotes(log: Path) -> None:
    log.write_text(PLAIN.replace("reward", '"pay; in euros"'))
    assert len(bcq.load(log, columns={"rewards": ["pay; in euros"]})) == 3
    log.write_text(EXCEL.replace("reward", '"pay, in euros"'))
    assert len(bcq.load(log, columns={"rewards": ["pay, in euros"]})) == 3
    for text in (PLAIN.replace("reward", "pay; in euros"), EXCEL.replace("reward", "pay, euros")):
        log.write_text(text)
        assert "its first line has both commas and semicolons; put names" in refusal(log)


@pytest.mark.parametrize("block", [60, 2**24])
@pytest.mark.parametrize("empty", ["", "\n\n"])
def test_quoted_decimal_commas_are_refused_with_column_and_row(
    log: Path, block: int, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "CSV_BLOCK", block)
    rows = "".join(f"1,{i}.5,1,2,0,{i},0\n" for i in range(3, 9))
    log.write_text(PLAIN.replace(",1\n", ",0\n") + empty + rows + '1,20.5,1,2,0,"7,5",1\n')
    words = "rewards, row 9: reward is '7,5', not a number; where commas separate columns, decimals"
    assert f"{words} have a point; write 1.5" in refusal(log)


def test_points_between_semicolons_are_refused_since_they_may_mean_thousands(log: Path) -> None:
    log.write_text(EXCEL.replace(";2;0\n", ";1.234;0\n"))
    words = "rewards, row 1: reward is '1.234', not a number; where semicolons separate columns"
    assert f"{words}, decimals have a comma; write 1,5" in refusal(log)
    with pytest.raises(bcq.InputError, match=r"row 1: reward is '1\.234'"):
        convert(log, "log.hdf5", Options())


def test_other_cells_are_named_without_a_guess(log: Path) -> None:
    log.write_text(PLAIN.replace(",2,0\n", ",about 2 or 3,0\n"))
    words = "rewards, row 1: reward is 'about 2 or 3', not a number; correct the cell"
    assert words in refusal(log)


def test_a_step_of_another_kind_is_named_too(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "CSV_BLOCK", 60)
    log.write_text(PLAIN.replace("1,1.5", "1,late"))
    assert "step, row 2: step is 'late', not a number; correct the cell" in refusal(log)
    rows = "".join(f"1,{i},1,2,0,0,0\n" for i in range(9))
    log.write_text(PLAIN.splitlines()[0] + f"\n{rows}1,9.5,1,2,0,0,0\n")
    assert "step, row 9: step is '9.5', not int64 like the cells before it" in refusal(log)


def test_a_cell_of_two_lines_is_named_in_one(log: Path) -> None:
    log.write_text(PLAIN.replace(",2,0\n", ',"two\nthree",0\n'))
    assert "rewards, row 1: reward is 'two\\nthree', not a number; correct" in refusal(log)


@pytest.mark.parametrize("cell", ["2, or 3", "1 2", "1-2"])
def test_only_a_number_with_a_comma_is_told_of_points(log: Path, cell: str) -> None:
    log.write_text(PLAIN.replace(",2,0\n", f',"{cell}",0\n'))
    words = f"rewards, row 1: reward is '{cell}', not a number; correct the cell, or leave it empty"
    assert words in refusal(log)


def test_the_first_line_is_judged_by_its_first_mebibyte(log: Path) -> None:
    log.write_bytes(b"a" * (2**20 - 1) + b";b\n")
    assert dialect_of(log) == Dialect(";", ",")
    log.write_bytes(b"a" * 2**20 + b";b\n")
    assert dialect_of(log) == Dialect(",", ".")


def test_a_row_with_more_cells_than_names_is_refused_wherever_it_is(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "CSV_BLOCK", 60)
    rows = "".join(f"1,{i}.5,1,2,0,0,0\n" for i in range(9))
    log.write_text(PLAIN.splitlines()[0] + f"\n{rows}1,9.5,1,2,0,0,0,7\n")
    assert "cannot be read as CSV: CSV parse error: Row #11: Expected 7 columns" in refusal(log)
