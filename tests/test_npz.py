"""NumPy's npz: plain arrays come in exactly, everything else stays out."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bcq
from bcq.data.formats.limits import require_plausible
from bcq.system.errors import InputError
from refusals import refusal

ROWS = 40


def arrays(**changes: Any) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    complete = {
        "observations": generator.normal(size=(ROWS, 3)),
        "actions": generator.uniform(-1, 1, (ROWS, 2)).astype(np.float32),
        "rewards": generator.normal(size=ROWS),
        "next_observations": np.asfortranarray(generator.normal(size=(ROWS, 3))),
        "terminated": np.arange(ROWS) % 20 == 19,
        "truncated": np.arange(ROWS) % 20 == 9,
        "qpos": generator.normal(size=(ROWS, 2)),
    } | changes
    return {name: values for name, values in complete.items() if values is not None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.npz"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_plain_arrays_come_in_exactly(save: Any, path: Path) -> None:
    save(path, **arrays())
    dataset = bcq.load(path)
    for name, values in arrays().items():
        read = getattr(dataset, name)
        np.testing.assert_array_equal(read, values.astype(read.dtype), err_msg=name)


def test_common_names_are_known(path: Path) -> None:
    plain = arrays(qpos=None)
    names = ("obs", "act", "rew", "next_obs", "terminals", "timeouts")
    np.savez(path, **dict(zip(names, plain.values(), strict=True)))
    by_common_name = bcq.load(path)
    np.savez(path, **plain)
    assert bcq.load(path).fingerprint == by_common_name.fingerprint


def test_uncommon_names_can_be_given(path: Path) -> None:
    np.savez(path, **arrays(rewards=None, cost=np.arange(ROWS)))
    assert bcq.load(path, columns={"rewards": ["cost"]}).rewards.tolist() == list(range(ROWS))
    assert "rewards: is missing" in refusal(path)
    assert "there is no column price" in refusal(path, columns={"rewards": ["price"]})
    assert "give one array for each" in refusal(path, columns={"rewards": ["cost", "obs"]})


def test_dones_are_not_guessed_at(path: Path) -> None:
    np.savez(path, **arrays(terminated=None, truncated=None, dones=np.arange(ROWS) % 20 == 19))
    assert "does not show whether an episode terminated" in refusal(path)
    assert bcq.load(path, columns={"terminated": ["dones"]}).terminated.sum() == 2


def test_without_any_flag_what_is_missing_is_named(path: Path) -> None:
    np.savez(path, **arrays(terminated=None))
    message = refusal(path)
    assert "terminated: is missing" in message
    assert "dones" not in message


def test_the_files_bounds_are_used(path: Path) -> None:
    np.savez(path, **arrays(action_low=[-2, -3], action_high=[3, 4.0]))
    assert bcq.load(path).bounds.high.tolist() == [3, 4]


def test_one_bound_is_not_enough(path: Path) -> None:
    np.savez(path, **arrays(action_low=[-2, -3]))
    assert "contains only one of action_low and action_high" in refusal(path)


def test_other_members_of_the_archive_do_not_matter(path: Path) -> None:
    np.savez(path, **arrays())
    plain = bcq.load(path).fingerprint
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("rewards.txt", "none")
        archive.writestr("inner\\actions.npy", "none")
        archive.writestr("episode.npy", "none")
    assert bcq.load(path).fingerprint == plain
    inner = {"actions": ["inner\\actions"]}  # a folder, as some tools of Windows write it
    assert "there is no column inner" in refusal(path, columns=inner)


@pytest.mark.parametrize(("version", "read"), [((2, 0), True), ((3, 0), False)])
def test_versions_of_the_format_that_hold_numbers_are_read(
    version: tuple[int, int], read: bool, path: Path
) -> None:
    np.savez(path, **arrays(rewards=None))
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.arange(ROWS) * 1.0, version)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("rewards.npy", buffer.getvalue())
    if read:
        assert bcq.load(path).rewards.tolist() == list(range(ROWS))
    else:
        assert "version (3, 0) of the NumPy format" in refusal(path)


def test_steps_of_an_archive_cannot_be_mapped(path: Path) -> None:
    np.savez(path, **arrays(t=np.arange(ROWS)))
    assert "step: give one array for each of observations" in refusal(path, columns={"step": ["t"]})


# Not to be trusted


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("/tmp/bcq-was-here"),))


def test_objects_are_refused_unopened(path: Path) -> None:
    np.savez(path, **arrays(rewards=np.array([Bomb()] * ROWS)))
    assert "rewards.npy: contains object, not numbers; no pickle is opened" in refusal(path)
    assert not Path("/tmp/bcq-was-here").exists()
    np.savez(path, **arrays(rewards=np.array([None] * ROWS)))
    assert "contains object" in refusal(path)


@pytest.mark.parametrize("values", [np.full(ROWS, "1.5"), np.zeros(ROWS, [("a", float)])])
def test_text_and_records_are_refused(values: Any, path: Path) -> None:
    np.savez(path, **arrays(rewards=values))
    assert "not numbers" in refusal(path)


def with_header(path: Path, shape: str, body: bytes, kind: str = "<f4") -> None:
    """An archive whose rewards have this header, true or not."""
    np.savez(path, **arrays(rewards=None))
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "rewards.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body
        )


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ("(1000000000000,)", b""),
        ("(4000000000, 4000000000, 4000000000)", b""),
        ("(41,)", bytes(160)),
        ("(-1,)", bytes(160)),
        ("('a',)", bytes(160)),
        ("(__import__('os').getpid(),)", bytes(160)),
    ],
)
def test_absurd_headers_are_refused(shape: str, body: bytes, path: Path) -> None:
    with_header(path, shape, body)
    refusal(path)


def test_a_bomb_is_refused_before_it_is_unpacked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcq.data.formats.limits.LARGE", 2**24)
    np.savez(path, **arrays(rewards=None))
    rows = 2**23
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (rows,)}
    )
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("rewards.npy", "w", force_zip64=True) as member,
    ):
        member.write(header.getvalue())
        member.write(bytes(4 * rows))
    assert "rewards.npy: claims 0.03 GiB but the file stores" in refusal(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04N.", b"text" * 1000])
def test_foreign_and_damaged_files_are_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    assert "cannot be read as npz" in refusal(path)


def test_a_truncated_or_altered_archive_is_refused(path: Path) -> None:
    np.savez(path, **arrays())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "cannot be read as npz" in refusal(path)
    place = whole.index(b"\x93NUMPY") + 400
    path.write_bytes(whole[:place] + bytes(8) + whole[place + 8 :])
    assert "cannot be read as npz" in refusal(path)


def test_members_outside_the_archives_folder_are_not_arrays_of_it(path: Path) -> None:
    np.savez(path, **arrays(rewards=None))
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(ROWS))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../rewards.npy", buffer.getvalue())
    assert "rewards: is missing" in refusal(path)


def test_a_claim_is_refused_if_it_is_large_and_far_more_than_is_stored() -> None:
    require_plausible("rewards", 2**30, 1)  # small enough to do no harm
    require_plausible("rewards", 200 * 2**23, 2**23)  # as a constant column compresses
    with pytest.raises(InputError, match=r"rewards: claims 1\.00 GiB but the file stores 1 bytes"):
        require_plausible("rewards", 2**30 + 1, 1)
    with pytest.raises(InputError, match=r"claims 1\.56 GiB but the file stores 8,388,608 bytes"):
        require_plausible("rewards", 200 * 2**23 + 1, 2**23)
