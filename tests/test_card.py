"""The report card: what it says, that nothing in it is ever HTML but its own, and its pictures."""

import base64
import csv
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image

import bcq
from bcq.cli.application import main
from bcq.data.bounds import ActionBounds, Choices
from bcq.data.columns import Finding, Provenance
from bcq.data.dataset import Dataset
from bcq.data.layout import Layout, ObservationColumn
from bcq.data.splits import HoldOut
from bcq.judging import card as module
from bcq.judging import conduct as conduct_module
from bcq.judging.candidates import Candidate, Choice
from bcq.judging.card import Card, as_html, own, reason, require_place
from bcq.judging.charts import (
    Axis,
    bars,
    counts_in,
    curve,
    gauge,
    histogram,
    horizontal,
    intervals,
    shortened,
    thinned,
)
from bcq.judging.conduct import Conduct, choices_of, examples, quantities_of
from bcq.judging.curves import as_number, curves_of
from bcq.judging.importance import Sampled
from bcq.judging.limits import sentences
from bcq.judging.origins import doctor, kept_aside, returns_of, said
from bcq.judging.page import CSS, Element, element, page, table, written
from bcq.judging.report import as_text, words
from bcq.judging.support import Support
from bcq.judging.values import Estimate
from bcq.judging.verdict import RULE
from bcq.runs.configuration import LoggedBatch
from bcq.system.errors import InputError
from test_verdict import QUICK, judgement

SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(2)>"
CHOICE = f"a{IMAGE}"  # the name of a choice begins with a letter
LONG = 300 * "x"
QUOTE = "\"' onload='alert(3)"
TITLES = (
    *("Verdict", "Value of the policy against the behaviour"),
    *("Does the policy stay with the data?", "Learning", "What the policy does"),
    *("Data card", "Training card", "What the verdict does not cover"),
)
VOID = ("meta",)
NAN, INFINITE = math.nan, math.inf


class Parsed(HTMLParser):
    """The elements of a page, each with its attributes and all text in it; tags must match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self.open: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found: tuple[str, dict[str, str], list[str]] = (tag, {k: v or "" for k, v in attrs}, [])
        self.elements.append(found)
        if tag not in VOID:
            self.open.append(found)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, _, texts in self.open:
            texts.append(data)

    def of(self, tag: str, **attributes: str) -> list[tuple[dict[str, str], str]]:
        return [
            (given, "".join(texts))
            for name, given, texts in self.elements
            if name == tag and attributes.items() <= given.items()
        ]

    def texts(self, tag: str) -> list[str]:
        return [text for _, text in self.of(tag)]


def parsed(part: Element) -> Parsed:
    return Parsed(written(part))


# One card, made by the command


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Card, Path]:
    """A card of a log whose names are hostile, and its page."""
    folder = tmp_path_factory.mktemp("card")
    log, run, out = folder / f"{IMAGE}&.csv", folder / 'run"><script>', folder / "new" / "card.html"
    mapping = folder / "map.json"
    names = {"episode": "day", "step": "hour", "observations": [SCRIPT, QUOTE, LONG]}
    names |= {"actions": ["what"], "rewards": "money", "terminated": "over"}
    mapping.write_text(json.dumps(names))
    random = np.random.default_rng(0)
    with log.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["day", "hour", SCRIPT, QUOTE, LONG, "what", "money", "over"])
        for day in range(40):
            for hour in range(6):
                state, choice = random.normal(size=3), int(random.integers(2))
                reward = float(state[0]) * (1 if choice else -1)
                rows.writerow([day, hour, *state, (CHOICE, "wait")[choice], reward, int(hour == 5)])
    cards: list[Card] = []

    def write(card: Card, path: Path) -> None:
        cards.append(card)
        module.write_card(card, path)

    given = ["--data", str(log), "--columns", str(mapping)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcq.judging.values.FitSettings", lambda: QUICK)
        patch.setattr("bcq.judging.fitting.LONGEST", 2)
        patch.setattr("bcq.judging.behaviour.UPDATES", 100)
        patch.setattr("bcq.cli.judging.write_card", write)
        sizes = ["--hidden-sizes", "4", "--batch-size", "8", "--steps", "200"]
        kept = ["--hold-out", "0.5", "--checkpoint-every", "200", "--quiet", "--out", str(run)]
        main(["train", "discrete-bcq", *given, *sizes, *kept])
        main(["report", str(run), *given, "--out", str(out), "--quiet"])
    return cards[0], out


@pytest.fixture(scope="module")
def html(made: tuple[Card, Path]) -> str:
    return made[1].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tree(html: str) -> Parsed:
    return Parsed(html)


def test_the_parts_are_there_in_order(tree: Parsed) -> None:
    assert tree.texts("h2") == [f"{n}. {title}" for n, title in enumerate(TITLES, 1)]
    for attributes, _ in tree.of("section"):
        assert tree.of("h2", id=attributes["aria-labelledby"])
    assert len(tree.texts("h1")) == len(tree.texts("main")) == len(tree.texts("title")[:1]) == 1
    assert tree.of("html", lang="en")
    assert tree.of("meta", name="viewport")


def test_the_numbers_are_those_of_the_judgement(made: tuple[Card, Path], tree: Parsed) -> None:
    card, _ = made
    found, body = card.judgement, tree.texts("main")[0]
    values, support = found.values, found.support
    assert tree.of("p", **{"class": "word"})[0][1].endswith(found.verdict)
    assert reason(found) in body
    assert RULE in body
    cells = tree.texts("td")
    assert words(values.difference) in cells
    for one in (values.policy, values.behaviour, values.difference):
        assert f"{one.value:.5g}" in cells
        assert f"{one.low:.5g} to {one.high:.5g}" in cells
    for number in (
        f"{support.meter.ratio:.3g}",
        f"{support.meter.outside:.1%}",
        f"{support.reaction:.3g}",
        f"{support.draws:.3g}",
        f"{support.own_value:.5g}",
        f"{support.departure:.3g}",
        card.dataset.fingerprint,
        f"{len(card.dataset):,}",
        "20 episodes (50%), drawn at random; the policy did not learn from them",
        "discrete-bcq",
        "update 200",
    ):
        assert number in cells, number
    assert "Judged by 20 episodes that the policy did not learn from, discount 0.99." in body
    assert f"after {values.curve[-1][0]:,} updates" in body


def test_curves_of_the_run_and_of_the_fits_are_drawn(tree: Parsed) -> None:
    captions = [text.removesuffix(", against updates") for text in tree.texts("figcaption")]
    losses = ["behaviour loss", "critic loss"]
    assert [name for name in captions if name.endswith("loss")] == losses
    assert "fitted value of the policy, while it was fitted" in captions


def test_names_of_the_data_stay_text(html: str, tree: Parsed) -> None:
    known = "html head meta title style body main section h1 h2 h3 p div span strong figure \
        figcaption table caption thead tbody tr th td ul li code svg desc line text rect circle \
        polygon polyline"
    assert {name for name, _, _ in tree.elements} <= set(known.split())
    for _, attributes, _ in tree.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert not attributes.keys() & {"href", "src", "style", "srcset", "action", "xlink:href"}
    body = tree.texts("main")[0]
    assert f"{SCRIPT} " in body
    assert f"{QUOTE} " in body
    assert f"Logged: {CHOICE}" in body
    assert f"{IMAGE}&.csv" in tree.texts("td")  # the name of the file
    assert 'run"><script>' in tree.texts("td")
    assert CHOICE in [text for _, text in tree.of("text")]  # in a picture
    assert any(CHOICE in given["aria-label"] for given, _ in tree.of("svg"))
    assert "<script" not in html.lower()
    assert not re.search(r"https?:|//|url\(|@import", html)


def test_every_picture_is_told_in_words(tree: Parsed, html: str) -> None:
    pictures = re.findall(r"<svg.*?</svg>", html)
    assert len(pictures) == len(tree.of("svg", role="img")) > 5
    for drawn in pictures:
        found = Parsed(drawn)
        assert found.texts("title")[0]
        assert found.texts("desc")[0].endswith(".")
        assert not re.search(r"=\"[^\"]*\b(nan|inf)\b", re.sub(r' aria-label="[^"]*"', "", drawn))


def test_the_page_allows_only_its_own_style(tree: Parsed) -> None:
    rules = tree.of("meta", **{"http-equiv": "Content-Security-Policy"})[0][0]["content"]
    digest = base64.b64encode(hashlib.sha256(tree.texts("style")[0].encode()).digest()).decode()
    assert rules == f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'none'"
    assert written(CSS) == CSS  # escaping does not change it
    assert "prefers-color-scheme: dark" in CSS
    assert "@media print" in CSS
    assert not re.search(r"\b(tr|th|td)\b[^{}]*{[^}]*display", CSS)  # tables stay tables


def test_a_card_of_ours_is_replaced_and_nothing_else(made: tuple[Card, Path]) -> None:
    card, path = made
    require_place(path)
    other = path.with_name("other.html")
    other.write_text("<!doctype html><title>mine</title> bcq report")
    for bad, message in (
        (other, "other.html: already exists and is not a report card; name another file"),
        (path.parent, "is a folder; give a file"),
        (other / "card.html", "cannot create folder"),
    ):
        with pytest.raises(InputError, match=message):
            require_place(bad)
    assert other.read_text().endswith("bcq report")

    def full(**options: Any) -> None:
        raise OSError(28, f"No space left: {options}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", full)
        with pytest.raises(InputError, match=r"cannot write .*card\.html: No space left"):
            require_place(path)
    module.write_card(card, path)
    assert sorted(one.name for one in path.parent.iterdir()) == ["card.html", "other.html"]


def test_a_refused_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("mine")
    with pytest.raises(SystemExit) as stopped:
        main(["report", str(tmp_path), "--data", "a.csv", "--out", str(tmp_path / "a.html")])
    said = str(stopped.value)
    assert said.endswith("is not a report card; name another file; give one with --out")
    assert "\n" not in said


# Escaping


@pytest.mark.parametrize("text", [SCRIPT, IMAGE, QUOTE, "a & b", "</style>", "]]>", "&lt;"])
def test_text_is_text_wherever_it_stands(text: str) -> None:
    found = Parsed(
        page(text, element("p", text, title=text), element("svg", element("text", text)))
    )
    assert found.texts("title") == found.texts("p") == found.texts("text") == [text]
    assert found.of("p")[0][0]["title"] == text


def test_characters_that_are_not_text_are_replaced() -> None:
    assert written("a\x00b\x1b[1m\udcff\u202ecod\u2066.") == "a�b�[1m�" + "�cod�."
    assert written("line\nline\tü 漢 \u200d") == "line\nline\tü 漢 \u200d"
    written("\udcff").encode()


@pytest.mark.parametrize("name", ["a b", "a>", "", "on load=", "a\n"])
def test_only_names_are_names(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name"):
        element(name)
    with pytest.raises(ValueError, match="is not the name"):
        element("p", **{name: "x"})


def test_attributes_have_their_names() -> None:
    part = element("p", "x", class_="a", stroke_width=2, viewBox="0 0", aria_label='"')
    expected = '<p class="a" stroke-width="2" viewBox="0 0" aria-label="&quot;">x</p>'
    assert written(part) == expected


def test_a_table_names_its_rows_and_columns() -> None:
    found = parsed(table(("", "here"), [("meter", "1"), ("reaction", "2")], "Numbers"))
    assert found.texts("caption") == ["Numbers"]
    assert [text for _, text in found.of("th", scope="col")] == ["", "here"]
    assert [text for _, text in found.of("th", scope="row")] == ["meter", "reaction"]
    assert found.texts("td") == ["1", "2"]
    assert parsed(table((), [("a", "b")], "x")).texts("thead") == []
    (region,) = [given for given, _ in found.of("div")]  # scrolled by keys, and not out of turn
    expected = {"class": "wide", "role": "region", "tabindex": "0", "aria-label": "Numbers"}
    assert region == expected


# Pictures


def test_an_axis_by_hand() -> None:
    axis = Axis(0.0, 10.0, 100.0, 200.0)
    assert [axis.at(n) for n in (0.0, 2.5, 10.0, -5.0, 99.0)] == [100, 125, 200, 100, 200]
    assert axis.ticks() == [0, 2, 4, 6, 8, 10]
    assert Axis(0.0, 1.0, 120.0, 20.0).at(0.25) == 95.0  # upwards
    assert Axis.over([10.0, 30.0], 0.0, 1.0) == Axis(9.0, 31.0, 0.0, 1.0)  # and 5% on each side
    assert Axis.over([10.0, NAN, 30.0, INFINITE], 0.0, 1.0) == Axis(9.0, 31.0, 0.0, 1.0)
    assert Axis.over([20.0], 0.0, 1.0) == Axis(19.0, 21.0, 0.0, 1.0)
    assert Axis.over([0.0], 0.0, 1.0) == Axis(-1.0, 1.0, 0.0, 1.0)
    assert Axis.over([NAN], 0.0, 1.0).low == -0.05


@pytest.mark.parametrize("low", [-1e308, -1e15, -3.3, 0.0, 1e-320, 123456.0, 1e15, 1e300])
@pytest.mark.parametrize("width", [0.0, 5e-324, 1e-12, 0.7, 1e9, 1e308])
def test_an_axis_has_a_few_ticks_on_it_whatever_the_numbers(low: float, width: float) -> None:
    axis = Axis.over([low, low + width], 10.0, 330.0)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 6
    assert all(axis.low <= tick <= axis.high for tick in ticks)
    assert 10.0 <= axis.at(low) <= axis.at(low + width) <= 330.0


def test_the_first_and_the_last_number_of_an_axis_stay_inside_the_picture() -> None:
    drawn = parsed(element("svg", *horizontal(Axis(0.0, 10.0, 10.0, 330.0), 50.0)))
    anchors = [one["text-anchor"] for one, _ in drawn.of("text")]
    assert anchors == ["start", "middle", "middle", "middle", "middle", "end"]  # of 0, 2, ..., 10


def test_intervals_are_where_their_numbers_are() -> None:
    drawn = intervals(Estimate(12, 11, 13), Estimate(10, 9, 11), Estimate(2, -1, 3), 0.5)
    found = parsed(drawn)

    # The values are from 9 to 13, so the axis is from 8.8 to 13.2, at 10 to 330.
    def on_values(number: float) -> float:
        return round(10 + (number - 8.8) / 4.4 * 320, 2)

    def on_change(number: float) -> float:  # from -1 to 3, 0 included: the axis is -1.2 to 3.2
        return round(10 + (number + 1.2) / 4.4 * 320, 2)

    def ends(style: str) -> set[float]:
        return {
            float(one[x]) for one, _ in found.of("line", **{"class": style}) for x in ("x1", "x2")
        }

    assert ends("policy") == {on_values(11), on_values(13)}
    assert ends("log") == {on_values(9), on_values(11)}
    assert ends("neutral") == {on_change(-1), on_change(3)}
    assert ends("mark") == {on_change(0), on_change(-0.5)}
    assert [float(one["cx"]) for one, _ in found.of("circle")] == [on_values(12)]
    assert [float(one["x"]) + 5 for one, _ in found.of("rect")] == [on_values(10)]
    assert found.of("polygon")[0][0]["points"].startswith(f"{on_change(2)},")
    axes = [one for one, _ in found.of("line", **{"class": "axis"}) if one["x1"] != one["x2"]]
    assert [one["y1"] for one in axes] == ["88.0", "174.0"]  # each below its intervals
    labels = {text: float(one["x"]) for one, text in found.of("text") if one.get("class")}
    assert labels["10"] == on_values(10)
    assert labels["0"] == on_change(0)
    assert found.texts("desc") == [
        "Policy 12 (11 to 13), behaviour 10 (9 to 11), difference 2 (-1 to 3)."
    ]


def test_the_line_at_zero_is_there_if_the_difference_is_far_from_it() -> None:
    found = parsed(intervals(Estimate(1, 0, 2), Estimate(1, 0, 2), Estimate(50, 40, 60), 5.0))
    places = [float(one["x1"]) for one, _ in found.of("line", **{"class": "mark"})]
    assert places == [round(10 + 3 / 66 * 320, 2)]  # the axis is from -3 to 63, so -5 is not on it


NOT_FINITE = Estimate(NAN, -INFINITE, INFINITE)
HUGE, ZERO = Estimate(1e308, -1e308, 1e308), Estimate(0, 0, 0)


@pytest.mark.parametrize(
    "drawn",
    [
        intervals(NOT_FINITE, Estimate(1, 0, 2), NOT_FINITE, NAN),
        intervals(HUGE, HUGE, HUGE, 1e307),
        intervals(ZERO, ZERO, ZERO, 0.0),
        gauge("a", NAN, [(1.0, "one")]),
        gauge("a", INFINITE, [(1.0, "one")]),
        gauge("a", 1e308, [(1.0, "one")]),
        curve("a", [(0, NAN), (100, INFINITE)]),
        curve("a", [(0, 1.0), (100, NAN), (200, 1e308), (NAN, 2.0)]),
        curve("a", []),
        histogram("a", np.array([0.0, 1.0]), np.array([0]), np.array([0])),
        bars("a", [], np.array([], int), np.array([], int)),
        bars("a", ["x" * 500], np.array([0]), np.array([3])),
    ],
)
def test_no_number_breaks_a_picture(drawn: Element) -> None:
    for _, attributes, _ in parsed(drawn).elements:
        numbers = [v for k, v in attributes.items() if k not in ("class", "role", "aria-label")]
        assert not any(re.search("nan|inf", number, re.IGNORECASE) for number in numbers)
        assert not any("e+" in number for number in numbers)


def test_an_interval_that_is_not_finite_is_said() -> None:
    texts = parsed(intervals(NOT_FINITE, Estimate(1, 0, 2), NOT_FINITE, NAN)).texts("text")
    assert texts.count("is not a finite number") == 2


def test_a_gauge_marks_its_number() -> None:
    found = parsed(gauge("Meter", 2.0, [(1.0, "like"), (3.0, "far")]))
    assert float(found.of("circle")[0][0]["cx"]) == 170.0  # half of 0 to 4, at 10 to 330
    assert [float(one["x1"]) for one, _ in found.of("line", **{"class": "mark"})] == [90.0, 250.0]
    names = {text: (float(one["x"]), one["text-anchor"]) for one, text in found.of("text")}
    assert (names["like"], names["far"]) == ((94.0, "start"), (246.0, "end"))  # beside the lines
    assert found.texts("desc") == ["It is 2; like: 1, far: 3."]
    far = parsed(gauge("Meter", 10.0, [(1.0, "like")]))
    assert float(far.of("circle")[0][0]["cx"]) == round(10 + 320 / 1.1, 2)


def test_a_curve_by_hand() -> None:
    found = parsed(curve("loss", [(0, 1.0), (50, NAN), (100, 2.0), (200, 0.0)]))
    lines = [one["points"] for one, _ in found.of("polyline")]
    # Across 0 to 210 at 52 to 330, upwards -0.1 to 2.1 at 120 to 10.
    assert lines == ["52,65", "184.38,15 316.76,115"]
    assert len(found.of("circle")) == 1  # a lone point
    assert found.texts("desc") == ["From 1 at 0 to 0 at 200 updates."]


def test_many_points_become_means() -> None:
    points = [(float(i), float(i % 2)) for i in range(3_000)]
    assert len(thinned(points)) == 150
    assert thinned(points)[0] == (9.5, 0.5)
    assert thinned(points[:150]) == points[:150]
    assert "Points are means; 3,000 numbers" in parsed(curve("a", points)).texts("desc")[0]


def test_a_histogram_by_hand() -> None:
    edges = np.array([0.0, 1.0, 2.0])
    values = np.array([0.0, 0.5, 1.0, 2.0, NAN, 3.0, -INFINITE])
    assert counts_in(values, edges).tolist() == [2, 2]  # the last bin includes its end
    found = parsed(histogram("a", edges, np.array([3, 1]), np.array([0, 4])))
    bins = [{k: float(v) for k, v in one.items() if k != "class"} for one, _ in found.of("rect")]
    # Shares 0.75 and 0.25 on an axis up to 1.05, from 120 to 10.
    tops = [round(120 - 110 * share / 1.05, 2) for share in (0.75, 0.25)]
    assert [one["y"] for one in bins] == tops
    assert [one["height"] for one in bins] == [round(120 - top, 2) for top in tops]
    assert [(one["x"], one["width"]) for one in bins] == [(52, 139), (191, 139)]
    top = round(120 - 110 / 1.05, 2)
    line = found.of("polyline")[0][0]["points"]
    assert line == f"52,120 52,120 191,120 191,{top} 330,{top} 330,120"
    assert "log in each bin: 75%, 25%; of the policy: 0%, 100%." in found.texts("desc")[0]


def test_bars_by_hand() -> None:
    found = parsed(bars("a", ["on", "off"], np.array([3, 1]), np.array([1, 1])))
    widths = [float(one["width"]) for one, _ in found.of("rect")]
    assert widths == [122.5, 183.75, 122.5, 61.25]  # of 245
    assert [float(one["y"]) for one, _ in found.of("rect")] == [16, 28, 60, 72]
    assert [float(one["y"]) for one, _ in found.of("text")] == [12, 24, 36, 56, 68, 80]
    assert found.of("svg")[0][0]["viewbox"] == "0 0 340 88"
    assert shortened(50 * "x") == 43 * "x" + "…"
    assert shortened(44 * "x") == 44 * "x"
    labels = ["on", "50.0% policy", "75.0% log", "off", "50.0% policy", "25.0% log"]
    assert found.texts("text") == labels
    assert found.texts("desc") == ["on: policy 50.0%, log 75.0%; off: policy 50.0%, log 25.0%."]


# What the policy does


def small(bounds: ActionBounds, actions: Any, observations: int = 2, **changes: Any) -> Dataset:
    count = len(actions)
    states = np.arange(count * observations, dtype=np.float32).reshape(count, observations)
    ends = np.arange(count) % 3 == 2
    return Dataset(
        observations=states,
        actions=np.array(actions, np.float32),
        rewards=np.arange(count, dtype=np.float32),
        next_observations=states,
        terminated=ends,
        truncated=np.zeros(count, bool),
        bounds=bounds,
        provenance=Provenance(),
        **changes,
    )


def between(low: float, high: float, size: int = 1) -> ActionBounds:
    return ActionBounds(np.full(size, low, np.float32), np.full(size, high, np.float32))


def conduct(dataset: Dataset, taken: Any) -> Conduct:
    return Conduct(np.arange(len(dataset)), dataset.actions, np.array(taken, np.float32))


def test_quantities_are_counted_between_their_bounds() -> None:
    dataset = small(between(0, 20), [[0.5], [20.0], [0.2]])
    parts = quantities_of(conduct(dataset, [[1.5], [1.5], [1.5]]), dataset, {"actions": [SCRIPT]})
    found = parsed(element("div", *parts))
    shares = ", ".join(["67%", *["0%"] * 18, "33%"])
    taken = ", ".join(["0%", "100%", *["0%"] * 18])
    told = f"From 0 to 20. Shares of the log in each bin: {shares}; of the policy: {taken}."
    assert found.texts("desc") == [told]
    assert found.texts("title") == [f"Actions by share: {SCRIPT}"]
    assert f"{SCRIPT} between its bounds; mean 1.5, logged 6.9" in found.texts("figcaption")[0]


def test_a_constant_dimension_and_too_many_of_them() -> None:
    dataset = small(between(5, 5, 30), np.full((3, 30), 5.0))
    parts = quantities_of(conduct(dataset, np.full((3, 30), 5.0)), dataset, {"actions": ["a"]})
    found = parsed(element("div", *parts))
    assert len(found.of("svg")) == 24
    assert found.texts("strong")[:2] == ["action 0", "action 1"]  # there is only one name
    assert found.texts("p") == ["6 more dimensions are not shown."]


def test_choices_are_counted_and_the_rest_is_summed() -> None:
    names = [f"choice {i}" for i in range(23)]
    dataset = small(Choices(names), [[0], [0], [1], [22], [2]])
    parts = choices_of(conduct(dataset, [[0], [1], [1], [1], [1]]), dataset, {})
    found = parsed(element("div", *parts))
    assert found.texts("p") == ["In 40.0% of the states the policy chooses what was logged."]
    assert found.texts("text")[:3] == ["choice 1", "80.0% policy", "20.0% log"]
    assert found.texts("text")[-3:] == ["3 other choices", "0.0% policy", "0.0% log"]
    assert sum(text.endswith("policy") for text in found.texts("text")) == 21


def test_examples_are_rows_of_the_log() -> None:
    columns = (ObservationColumn(SCRIPT), ObservationColumn("mode", ("on", "off")))
    layout = {"layout": Layout(columns)}
    dataset = small(between(0, 1), np.ones((9, 1)), 3, **layout)
    shown = examples(conduct(dataset, np.zeros((9, 1))), dataset, {"actions": ["heat"]})
    found = parsed(element("div", *shown))
    titles = [f"Judged episode {row // 3 + 1}, step {row % 3 + 1}" for row in range(9)]
    assert len(found.texts("h3")) == 6
    assert found.texts("h3") == [title for title in titles if title in found.texts("h3")]
    row = 3 * titles.index(found.texts("h3")[1])
    state = f"State: {SCRIPT} {row}, mode=on {row + 1}, mode=off {row + 2}"
    assert found.texts("p")[3:6] == [state, "Logged: heat 1", "Policy: heat 0"]


def test_examples_are_of_several_steps_where_all_episodes_have_the_same_length() -> None:
    dataset = small(between(0, 1), np.ones((45, 1)))
    shown = parsed(element("div", *examples(conduct(dataset, np.zeros((45, 1))), dataset, {})))
    assert {title[-1] for title in shown.texts("h3")} == {"1", "2", "3"}


def test_of_many_numbers_only_the_first_are_shown() -> None:
    dataset = small(between(0, 1), np.ones((3, 1)), 15)
    shown = examples(conduct(dataset, np.zeros((3, 1))), dataset, {})
    text = parsed(element("div", *shown)).texts("p")[0]
    assert text.startswith("State: observation 0 0, observation 1 1,")
    assert text.endswith("observation 11 11, and 3 more numbers")


def test_the_policy_acts_at_evenly_spread_rows(
    made: tuple[Card, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    card, _ = made
    policy = card.choice.chosen.policy()
    assert card.conduct.rows.tolist() == list(range(120))
    np.testing.assert_array_equal(card.conduct.logged, card.judged.actions)
    monkeypatch.setattr(conduct_module, "ROWS", 3)
    few = Conduct.of(policy, card.judged, seed=0)
    assert few.rows.tolist() == [0, 59, 119]
    np.testing.assert_array_equal(few.taken, policy.act(card.judged.observations[few.rows]))


# What it comes from


def test_returns_of_episodes_by_hand() -> None:
    dataset = small(between(0, 1), np.ones((9, 1)))
    found = parsed(element("div", *returns_of(dataset)))  # 3, 12 and 21
    assert found.texts("td") == ["12", "3", "7.5", "12", "16.5", "21"]
    assert len(found.of("svg")) == 1
    cut = small(between(0, 1), np.ones((2, 1)))
    assert "no returns" in parsed(element("div", *returns_of(cut))).texts("p")[0]


def test_findings_are_told() -> None:
    assert "Nothing" in parsed(element("div", *doctor([]))).texts("p")[0]
    rows = np.array([3, 17])
    finding = Finding("x", SCRIPT, "is odd", "mend it", "it misleads", rows, "warning")
    found = parsed(element("div", *doctor([finding])))
    told = [f"warning: {SCRIPT}: is odd [rows 3, 17]", "Why it matters: it misleads"]
    assert found.texts("p") == [*told, "Remedy: mend it"]


def test_settings_are_said() -> None:
    values = [None, True, False, (64, 64), 5_000, 0.5, SCRIPT]
    told = ["none", "yes", "no", "64, 64", "5,000", "0.5", SCRIPT]
    assert [said(value) for value in values] == told


def test_curves_take_what_is_a_number(tmp_path: Path, made: tuple[Card, Path]) -> None:
    run = bcq.Run(tmp_path, made[0].run.config)
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 100, "kl": 1, "vae_loss": NaN, "a_loss": 2, "value_estimate": "x"}\n'
        '{"step": 200, "kl": 1e999, "vae_loss": 3, "target_mean": null}\n'
    )
    (tmp_path / "episodes.jsonl").write_text(
        '{"step": 100, "return": 1}\n{"step": 100, "return": 2}\n{"step": 200, "return": 5}\n'
    )
    found = curves_of(run)
    assert list(found) == ["mean return of the evaluations", "vae_loss", "a_loss", "kl"]
    assert found["mean return of the evaluations"] == [(100, 1.5), (200, 5)]
    assert math.isnan(found["vae_loss"][0][1])
    assert math.isnan(as_number(10**400))


# Sentences


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {},
            "the difference, 1 to 3, is above 0: by this estimate the policy earns more",
        ),
        ({"low": -0.3}, "-0.3 to 3, reaches 0 or less, but no loss of 0.5 or more"),
        ({"low": -2.0}, "-2 to 3, includes a loss of 0.5 (5% of the behaviour's value)"),
        (
            {"low": -3.0, "high": -1.0},
            "-3 to -1, is below 0: by this estimate the policy earns less",
        ),
        ({"meter": 4.0, "settled": False}, "settle and the policy leaves the data (meter 4.00)."),
        ({"departure": 20.0}, "takes choices that the log rarely shows (departure 20)."),
        ({"departure": 20.0, "low": -3.0, "high": -1.0}, "-3 to -1, is below 0"),
        ({"low": NAN}, "The difference to the behaviour is not a finite number."),
    ],
)
def test_the_reason_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    found = reason(judgement(**changes))
    assert sentence in found
    assert found[0].isupper()
    assert found.endswith(".")


@pytest.mark.parametrize(
    ("value", "ending"),
    [(9.0, ": it expects less than the fitted values say"), (12.5, "(11 to 13)")],
)
def test_the_own_value_is_compared(value: float, ending: str) -> None:
    found = judgement(own_value=value)
    assert own(found.support, found.values.policy).endswith(ending)


def changed(card: Card, **changes: Any) -> Parsed:
    """The page of a card with another judgement or choice."""
    return Parsed(as_html(replace(card, choice=replace(card.choice, **changes))))


def test_a_card_of_numbers_that_are_not_finite(made: tuple[Card, Path]) -> None:
    odd = judgement(NAN, INFINITE, value=NAN, behaviour=INFINITE, meter=NAN, own_value=NAN)
    page = changed(made[0], judgement=odd)
    assert page.of("p", **{"class": "word"})[0][1] == "? cannot tell"
    for _, attributes, _ in page.elements:
        drawn = attributes.keys() & {"x", "y", "x1", "x2", "cx", "cy", "points", "width", "height"}
        assert not any(re.search("nan|inf", attributes[name]) for name in drawn)


def test_importance_sampling_is_told(made: tuple[Card, Path]) -> None:
    base, one = judgement(), Estimate(4.0, 3.0, 5.0)
    for logged, told in ((True, "are in the log"), (False, "errors multiply")):
        sampled = Sampled(one, Estimate(6.0, 5.0, 7.0), 12.34, logged)
        found = changed(made[0], judgement=replace(base, sampled=sampled))
        assert {"4 (3 to 5)", "6 (5 to 7)", "12.3"} <= set(found.texts("td"))
        assert any(told in text for text in found.texts("p"))
        assert not any("cut ends" in text for text in found.texts("p"))
    cut = replace(judgement(tail=0.366), sampled=Sampled(one, one, 12.34, True))
    words = "leaves out what follows after the cut ends of episodes (37% of the weight"
    assert any(words in text for text in changed(made[0], judgement=cut).texts("p"))
    assert words in as_text(replace(made[0].choice, judgement=cut))
    assert "No estimate. Importance sampling: not here." in changed(made[0], judgement=base).texts(
        "p"
    )


def test_what_flatters_is_said_beside_the_verdict(made: tuple[Card, Path]) -> None:
    found = changed(made[0], fit_on="all")
    assert "learned from: this flatters it" in found.of("p", **{"class": "warning"})[0][1]
    assert any(text.startswith("New episodes.") for text in found.texts("li"))


def test_several_checkpoints_are_compared(made: tuple[Card, Path]) -> None:
    run = made[0].run
    ranking = [(Candidate(run, 200), judgement()), (Candidate(run, 100), judgement(value=9.0))]
    found = changed(made[0], ranking=ranking)
    assert {"12 (11 to 13)", "9 (8 to 10)"} <= set(found.texts("td"))
    assert "The first is the best." in found.texts("p")


def test_what_is_not_covered_depends_on_the_judgement(
    made: tuple[Card, Path], tmp_path: Path
) -> None:
    choice = made[0].choice
    told = " ".join(sentences(choice))
    assert "come from 20 episodes" in told
    assert "ten steps later counts 0.904, a hundred steps later 0.366" in told
    assert "Later episodes." in told
    assert "What follows after the log." not in told  # every episode terminates
    long = judgement()
    long = replace(long, values=replace(long.values, tail=0.25))
    assert any("25% of the weight" in one for one in sentences(replace(choice, judgement=long)))
    config = made[0].run.config
    assert isinstance(config.dataset, LoggedBatch)
    batch = replace(config.dataset, hold_out=HoldOut(0.5, "time"))
    by_time = bcq.Run(tmp_path, replace(config, dataset=batch))
    last = Choice("held-out", 0.9, Candidate(by_time, 100), judgement(), 20, [])
    assert "Later episodes." not in " ".join(sentences(last))
    assert "the last ones of the log" in kept_aside(by_time, made[0].dataset)


def test_a_support_without_draws_says_so() -> None:
    same, drawn = (
        Support(judgement().support.meter, 1.0, draws, own_value=None, departure=None)
        for draws in (0.0, 0.5)
    )
    assert "same action whenever" in module.draws_in_words(same)
    assert "two actions drawn" in module.draws_in_words(drawn)


# In a browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--enable-logging=stderr", "--v=0"),
)
Look = Callable[..., tuple[str, str]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Opens a page in a browser; returns what it prints, and what it logs."""

    def opened(address: str, width: int, dark: bool, *flags: str) -> tuple[str, str]:
        assert BROWSER is not None
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        size = f"--window-size={width},800"
        own = f"--user-data-dir={tmp_path / f'{width}{dark}'}"
        command = [BROWSER, *FLAGS, scheme, size, own, *flags, address]
        short = os.environ | {"TMPDIR": "/tmp"}  # the path of its socket has at most 108 characters
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True, env=short
        )
        return done.stdout, done.stderr

    return opened


class Proxy(BaseHTTPRequestHandler):
    """Answers every request of a browser with the page, and writes down what was asked for."""

    page = b""
    asked: tuple[list[tuple[str, str]], ...] = ([],)

    def do_GET(self) -> None:
        self.asked[0].append((self.path, self.headers.get("Referer", "")))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.page)

    def do_CONNECT(self) -> None:
        self.send_error(403)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium or Chrome on the PATH")
@pytest.mark.parametrize(
    ("width", "dark"), [(390, False), (390, True), (1280, False), (1280, True)]
)
def test_a_browser_shows_the_page_and_asks_for_nothing_else(
    width: int, dark: bool, html: str, look: Look, tmp_path: Path
) -> None:
    Proxy.page, Proxy.asked = html.encode(), ([],)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        port, shot = server.server_address[1], tmp_path / "shot.png"
        _, said = look(
            "http://card.test/card.html",
            width,
            dark,
            f"--proxy-server=http://127.0.0.1:{port}",
            f"--screenshot={shot}",
        )
    finally:
        server.shutdown()
        server.server_close()
    assert "CONSOLE" not in said  # where the page's policy tells what it forbade
    # A browser also asks its maker, by itself; what a page asks for says from where.
    asked = [path for path, origin in Proxy.asked[0] if "card.test" in path + origin]
    assert asked == ["http://card.test/card.html"]
    with Image.open(shot) as picture:
        assert picture.width == width
        corner = picture.convert("L").getpixel((2, 2))
    assert isinstance(corner, int)
    assert (corner < 64) == dark


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium or Chrome on the PATH")
def test_a_narrow_screen_needs_no_scrolling_to_the_side(
    html: str, look: Look, tmp_path: Path
) -> None:
    """A browser's own window may not be so narrow; a frame in it is."""
    told = "parent.postMessage(document.documentElement.scrollWidth + ' of ' + innerWidth, '*')"
    copy = re.sub(r"<meta http-equiv[^>]*>", "", html)
    copy = copy.replace("</body>", f"<script>{told}</script></body>")
    (tmp_path / "copy.html").write_text(copy, encoding="utf-8")
    heard = "<script>onmessage = event => document.title = event.data</script>"
    frame = '<iframe src="copy.html" width="390" height="800" frameborder="0"></iframe>'
    (tmp_path / "frame.html").write_text(f"<!doctype html>{heard}{frame}", encoding="utf-8")
    shown, _ = look(f"file://{tmp_path / 'frame.html'}", 1280, False, "--dump-dom")
    assert "<title>390 of 390</title>" in shown
