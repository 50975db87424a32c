"""The sampler of mutants: what it changes, what it leaves alone, and what it draws."""

import ast
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from mutants import Mutant, first_tests
from mutation_operators import OPERATORS
from mutation_runs import PACKAGE, ROOT, Suite, calls_in, imported, noting, texts_in
from mutation_sample import (
    STRATA,
    draw,
    interval,
    marked_equivalent,
    report,
    shares,
    stratum_of,
)
from mutation_sites import Mutation, is_sound, mutations
from mutation_source import Edit, function_at, signatures_in

SOURCES = texts_in(ROOT / PACKAGE)
ONE_OF_EACH = (
    *("algorithms/learning.py", "system/files.py", "simulation/rollouts.py"),
    *("training/policy.py", "collection/buffer.py", "data/episodes.py"),
    *("paper/table.py", "tabular/q_learning.py", "cli/verbs.py"),
)
SOME = {file: SOURCES[file] for file in ONE_OF_EACH}  # of each stratum, for the sake of time


@cache
def all_mutations() -> list[Mutation]:
    return [one for file, text in SOURCES.items() for one in mutations(file, text)]


def mutants(text: str, operator: str) -> set[str]:
    """The changed lines, after the change."""
    text += "\n"
    found = [one for one in mutations("toy.py", text) if one.operator == operator]
    assert all(is_sound(one, text) for one in found)
    return {one.lines(text)[1] for one in found}


@pytest.mark.parametrize(
    ("operator", "line", "expected"),
    [
        ("arithmetic", "x = a + b", {"x = a - b"}),
        ("arithmetic", "x = (a * b) ** c", {"x = (a / b) ** c", "x = (a * b) * c"}),
        ("arithmetic", "x += b", {"x -= b"}),
        ("arithmetic", "x = 'a' + b", set()),
        ("comparison", "x = a < b == c", {"x = a <= b == c", "x = a < b != c"}),
        ("comparison", "x = a not in b", {"x = a in b"}),
        ("boolean", "x = a and (b or c)", {"x = a or (b or c)", "x = (b or c)", "x = a"}
         | {"x = a and (b and c)", "x = a and (c)", "x = a and (b)"}),
        ("condition", "x = a if b else c", {"x = a if not (b) else c"}),
        ("condition", "x = [a for a in b if a > c]", {"x = [a for a in b if not (a > c)]"}),
        ("condition", "x = a if b == d else c", set()),
        ("sign", "x = -(a + b)", {"x = (a + b)"}),
        ("sign", "x = a[~b]", {"x = a[b]"}),
        ("sign", "x = not a", {"x = a"}),
        ("number", "x = f(0, 12, 0.5, 0.0)", {"x = f(1, 12, 0.5, 0.0)", "x = f(0, 24, 0.5, 0.0)"}
         | {"x = f(0, 12, 1.0, 0.0)", "x = f(0, 12, 0.5, 1.0)"}),
        ("number", "x = True", {"x = False"}),
        ("name", "x = a['key']", {"x = a['XXkey']"}),
        ("name", "x = f'{a}.json'", {"x = f'XX{a}.json'"}),
        ("name", "x = 'two words'", set()),
        ("call", "x = abs(a + b) * c", {"x = (a + b) * c"}),
        ("call", "x = a.max(axis=1)", {"x = a"}),
        ("call", "x = float(a)", set()),
        ("call", "x = max(a, b)", {"x = a", "x = b"}),
        ("argument", "x = f(a, b, c=d)", {"x = f(a, c=d)", "x = f(a, b)"}),
        ("argument", "x = f(\n    a=b,\n)", {""}),
        ("swap", "x = f(a, b, c)", {"x = f(b, a, c)", "x = f(a, c, b)"}),
        ("swap", "x = max(a, b)", set()),
        ("reduction", "x = a.mean() + max(b)", {"x = a.sum() + max(b)", "x = a.mean() + min(b)"}),
        ("axis", "x = a.sum(axis=0)", {"x = a.sum(axis=1)"}),
        ("axis", "x = a.sum(axis=-1)", {"x = a.sum(axis=0)"}),
        ("statement", "a[0] = b", {"pass"}),
        ("statement", "f(a)", {"pass"}),
        ("statement", "x = a", set()),
        ("statement", "del a, b", set()),
    ],
)  # fmt: skip
def test_an_operator_changes_a_line(operator: str, line: str, expected: set[str]) -> None:
    assert mutants(line, operator) == expected


@pytest.mark.parametrize(
    ("operator", "signature", "body", "expected"),
    [
        ("statement", "f()", "raise ValueError(1 + 1)", {"pass"}),
        ("rebinding", "f(a)", "a = a[1:]; b = a; b = 2", {"pass; b = a; b = 2"}
         | {"a = a[1:]; b = a; pass"}),
        ("returned", "f() -> bool", "return a", {"return not (a)"}),
        ("returned", "f() -> float", "return a + b", {"return (a + b) + 1"}),
        ("returned", "f() -> Array", "return a", {"return -a"}),
        ("returned", "f() -> list[int]", "return a", {"return []"}),
        ("returned", "f() -> int | None", "return a", {"return None"}),
        ("returned", "f() -> int | None", "return None", set()),
    ],
)  # fmt: skip
def test_an_operator_changes_a_function(
    operator: str, signature: str, body: str, expected: set[str]
) -> None:
    assert mutants(f"def {signature}:\n    {body}", operator) == expected


def test_every_operator_finds_something_in_the_package() -> None:
    found = {one.operator for one in all_mutations()}
    assert found == {operator.__name__ for operator in OPERATORS}


@pytest.mark.parametrize(
    "text",
    [
        '"""Two."""',
        "x: tuple[2] = a",
        "Kind = Literal['a', 'b']",
        "T = TypeVar('T', bound='a')",
        "__all__ = ['a']",
        "@f(1)\nclass A:\n    x: int\n    '''one'''",
        "assert a == 1",
        "x = f'{a + 1} rows'",
        "x = zip(*a, strict=True)",
        "x = a.plot(alpha=0.5, label='b')",
    ],
)  # fmt: skip
def test_what_is_left_alone(text: str) -> None:
    assert mutations("toy.py", text + "\n") == []


def test_a_call_without_a_required_argument_is_no_mutant() -> None:
    text = (
        "def f(a, *, b, c=1): ...\nclass A:\n    d: int\n    e: int = 1\n"
        "f(a, b=b, c=c)\nA(d=d, e=e)\n"
    )
    found = mutations("toy.py", text, signatures_in([text]))
    changed = {one.lines(text)[1] for one in found if one.operator == "argument"}
    assert changed == {"f(a, b=b)", "A(d=d)"}


def test_arguments_of_different_types_are_not_exchanged() -> None:
    text = "def f(a: int, b: int, c: str): ...\nf(x, y, z)\n"
    found = mutations("toy.py", text, signatures_in([text]))
    assert [one.lines(text)[1] for one in found if one.operator == "swap"] == ["f(y, x, z)"]
    text += "def f(a: str): ...\n"
    found = mutations("toy.py", text, signatures_in([text]))
    assert sum(one.operator == "swap" for one in found) == 2


def test_a_mutation_knows_its_function() -> None:
    text = "x = 1\ndef f(a=2):\n    def g():\n        return 3\n    return 4\n"
    found = [one for one in mutations("toy.py", text) if one.operator == "number"]
    assert [(one.line, one.function) for one in found] == [(1, ""), (2, "f"), (4, "f.g"), (5, "f")]


def test_letters_of_several_bytes_move_nothing() -> None:
    assert mutants("x = f('é', a + b)", "arithmetic") == {"x = f('é', a - b)"}


def test_a_sample_is_of_sound_mutants_with_each_stratum_in_proportion() -> None:
    assert {stratum_of(file) for file in SOURCES} == set(STRATA)  # every module is in one
    signatures = signatures_in(SOME.values())
    sizes: Counter[str] = Counter()
    for file, text in SOME.items():
        sizes[stratum_of(file)] += len(mutations(file, text, signatures))
    sample = draw(SOME, seed=1, count=100)
    assert len(set(sample)) == 100
    drawn = Counter(stratum_of(one.file) for one in sample)
    for name in STRATA:
        assert abs(drawn[name] - 100 * sizes[name] / sizes.total()) < 1
    for mutation in sample[:20]:
        text = SOME[mutation.file]
        assert ast.unparse(ast.parse(mutation.apply(text))) != ast.unparse(ast.parse(text))


def test_nearly_every_mutation_found_is_sound() -> None:
    tried = random.Random(0).sample(all_mutations(), 100)
    assert sum(is_sound(one, SOURCES[one.file]) for one in tried) >= 98


def test_the_same_seed_draws_the_same_sample_and_another_seed_another() -> None:
    some = {file: SOURCES[file] for file in ("algorithms/learning.py", "training/policy.py")}
    sample = draw(some, seed=1, count=20)
    assert draw(some, seed=1, count=20) == sample
    assert draw(some, seed=2, count=20) != sample


def test_shares_add_up() -> None:
    assert shares({"a": 1, "b": 1, "c": 1}, 10) == {"a": 4, "b": 3, "c": 3}
    assert shares({"a": 98, "b": 2}, 10) == {"a": 10, "b": 0}


def test_every_module_is_in_one_stratum() -> None:
    assert {stratum_of(file) for file in SOURCES} == STRATA.keys()
    with pytest.raises(ValueError, match=r"new\.py: in 0 strata"):
        stratum_of("new.py")


def test_the_interval_is_wilsons() -> None:
    assert interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Wilson 1927
    assert interval(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert interval(0, 0) == (0.0, 1.0)


def test_every_mark_is_of_a_mutation_that_exists() -> None:
    signatures = signatures_in(SOURCES.values())
    for file, before, after in marked_equivalent():
        found = mutations(file, SOURCES[file], signatures)
        assert (before, after) in {one.lines(SOURCES[file]) for one in found}, (file, before)


def test_equivalent_mutants_are_counted_apart_and_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"x{i} = 1\n" for i in range(20))
    found = mutations("cli/x.py", text)
    caught = {one: one.line != 4 for one in found}
    marks = tmp_path / "marks.toml"
    monkeypatch.setattr("mutation_sample.EQUIVALENT", marks)
    marks.write_text("")
    said = report(caught, {"cli/x.py": text})
    assert "all             19 of   20   95.0%  95% interval 76.4% to 99.1%" in said
    assert "-x3 = 1\n+x3 = 2\n" in said
    mark = '[[mutant]]\nfile = "cli/x.py"\nbefore = "x{0} = 1"\nafter = "x{0} = 2"\nreason = "?"\n'
    marks.write_text(mark.format(3))
    said = report(caught, {"cli/x.py": text})
    assert "all             19 of   19  100.0%" in said
    assert said.endswith("1 more are equivalent")
    marks.write_text(mark.format(3) + mark.format(4))
    with pytest.raises(SystemExit, match="2 of 20 mutants marked equivalent"):
        report(caught, {"cli/x.py": text})


def test_functions_note_their_calls_and_stay_the_same_program() -> None:
    for text in SOURCES.values():
        noted = ast.unparse(ast.parse(noting(text)))
        noted = "\n".join(line for line in noted.splitlines() if "__import__('notes')" not in line)
        assert noted == ast.unparse(ast.parse(text))


def test_a_mutant_meets_the_tests_that_called_its_function() -> None:
    suite = Suite(
        called={
            "test_quick.py::test_x": {"one", "other"},
            "test_slow.py::test_x": {"one", "Two.three"},
            "test_slow.py::test_y": {"Two.three"},
            "test_a.py": {"one"},  # in a fixture
            "test_a.py::test_x": {"one", "Two.three"},
            "test_other.py::test_x": {"user"},
            "test_whole.py::test_x": {"one", "user"},
        },
        seconds={
            **{"test_a.py": 5.0, "test_a.py::test_x": 1.0, "test_slow.py": 99.0},
            **{"test_slow.py::test_x": 6.0, "test_slow.py::test_y": 3.0},
            **{"test_quick.py::test_x": 1.0, "test_other.py::test_x": 2.0},
            "test_whole.py::test_x": 199.5,  # with the quick one, more than there is time for
        },
        texts={
            "test_quick.py": "import bcq",
            "test_slow.py": "from bcq import a",
            "test_a.py": "",
            "test_other.py": "",
            "test_whole.py": "",
        },
        package={
            "a.py": "def one(): 0\nclass Two:\n  def three(): 0",
            "b.py": "def other(): 0",
            "c.py": "from bcq.a import x\ndef user(): 0",
        },
    )

    def against(function: str) -> list[str]:
        return list(suite.against(Mutation("a.py", "number", 1, function, Edit(0, 0, ""))))

    own, slow = "test_a.py::test_x", ["test_slow.py::test_y", "test_slow.py::test_x"]
    assert against("one") == [own, slow[1], "test_quick.py::test_x", "test_a.py"]
    assert against("Two.three") == [own, *slow]
    assert against("new") == ["test_a.py", "test_slow.py"]  # made since the calls were recorded
    others = ["test_quick.py::test_x", "test_other.py::test_x"]
    assert against("") == [own, *slow, *others, "test_a.py", "test_slow.py"]


def test_notes_say_which_test_called_what_and_what_is_for_all() -> None:
    lines = ["", "\tmade", "test_a.py::test_x\tone", "\tmade", "test_a.py::test_x\t1.5\ts"]
    lines += ["test_a.py::test_x\ttwo", "test_a.py::test_x\t0.25\ts", "test_a.py::te"]
    assert calls_in("test_a.py", lines) == {
        "called": {"test_a.py": ["made"], "test_a.py::test_x": ["one", "two"]},
        "durations": {"test_a.py::test_x": 1.75},
    }


def test_the_function_at_a_line_is_the_innermost() -> None:
    text = (
        "x = 1\nclass A:\n    def f(self):\n        def g():\n            pass\n        return g\n"
    )
    assert [function_at(text, line) for line in range(1, 7)] == [
        "",
        "",
        "A.f",
        "A.f.g",
        "A.f.g",
        "A.f",
    ]


def test_regression_mutants_meet_the_tests_that_call_their_function_quick_ones_first() -> None:
    suite = Suite(
        called={
            "test_a.py": {"f"},
            **{"test_a.py::test_slow": {"f"}, "test_a.py::test_quick": {"f", "g"}},
            **{"test_a.py::test_other": {"g"}, "test_b.py::test_f": {"f"}},
        },
        seconds={"test_a.py::test_slow": 2.0, "test_a.py::test_quick": 1.0},
        texts={},
        package={"a.py": "def g():\n    pass\ndef f():\n    return 1\n"},
    )
    chosen = first_tests(Mutant("a.py", "return 1", "return 2", "test_a.py"), suite)
    assert list(chosen) == ["test_a.py::test_quick", "test_a.py::test_slow"]
    assert not first_tests(Mutant("a.py", "pass", "return", "test_b.py"), suite)


def test_what_a_file_imports() -> None:
    text = "import bcq.a\nfrom bcq import b\ndef f():\n    from bcq.c import d\n"
    assert imported(text) == {"bcq.a", "bcq", "bcq.b", "bcq.c", "bcq.c.d"}
