"""Small pictures for a page, as SVG; each has a title and a description in words.

They are 340 units wide, about the pixels of a phone, so that their text is legible there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bcq.judging.page import Element, element
from bcq.judging.values import Estimate

WIDTH = 340
LEFT, RIGHT = 52.0, 330.0  # of a chart with an axis on its left
TOP, BOTTOM = 10.0, 120.0
LARGEST = 1e300  # differences of larger numbers would overflow
SMALLEST = 1e-200
SAME = 1e-9  # numbers that differ by less, relatively, are drawn as equal
TICKS = 5  # at most, or one more
POINTS = 150  # of a line
NAME_LENGTH = 44  # characters
BAR = 9  # height of a bar

Point = tuple[float, float]


def plain(number: float) -> str:
    """A number of a tick or a coordinate, without a sign for zero."""
    return f"{number + 0.0:.10g}"


@dataclass(frozen=True)
class Axis:
    """A range of numbers, and the coordinates of its two ends."""

    low: float
    high: float
    start: float
    stop: float

    @classmethod
    def over(cls, numbers: Sequence[float], start: float, stop: float) -> "Axis":
        """An axis for these numbers, with some room; what is not finite is left out."""
        known = [min(max(n, -LARGEST), LARGEST) for n in numbers if math.isfinite(n)] or [0.0, 1.0]
        low, high = min(known), max(known)
        size = max(abs(low), abs(high))
        room = 0.05 * (high - low if high - low > SAME * size else size)
        room = room if room > SMALLEST else 1.0
        return cls(low - room, high + room, start, stop)

    def at(self, number: float) -> float:
        """The coordinate of a finite number; one beyond the axis is at its end."""
        share = (min(max(number, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 2)

    def ticks(self) -> list[float]:
        """Round numbers on the axis."""
        span = self.high - self.low
        unit: float = 10.0 ** math.floor(math.log10(span / TICKS))
        step = next(unit * times for times in (1, 2, 5, 10) if unit * times * TICKS >= span)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, min(last, first + TICKS) + 1)]


def line(start: Point, stop: Point, **attributes: str | float) -> Element:
    """A straight line."""
    return element("line", x1=start[0], y1=start[1], x2=stop[0], y2=stop[1], **attributes)


def words(text: str, x: float, y: float, **attributes: str | float) -> Element:
    """Text in a picture."""
    return element("text", text, x=x, y=y, **attributes)


def picture(title: str, description: str, height: float, *parts: Element) -> Element:
    """An SVG with what it shows in words."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *parts,
        viewBox=f"0 0 {WIDTH} {plain(height)}",
        role="img",
        aria_label=f"{title}. {description}",
    )


def horizontal(axis: Axis, y: float, label: str = "") -> list[Element]:
    """An axis with numbers below it; the first and the last stay inside the picture."""
    parts = [line((axis.start, y), (axis.stop, y), class_="axis")]
    for tick in axis.ticks():
        x, anchor = axis.at(tick), "middle"
        if x > WIDTH - 30 or x < 30:
            anchor = "end" if x > WIDTH - 30 else "start"
        parts.append(line((x, y), (x, y + 4), class_="axis"))
        parts.append(words(plain(tick), x, y + 14, text_anchor=anchor, class_="small"))
    if label:
        parts.append(words(label, axis.stop, y + 27, text_anchor="end", class_="small"))
    return parts


def vertical(axis: Axis, x: float) -> list[Element]:
    """An axis with numbers on its left."""
    parts = [line((x, axis.start), (x, axis.stop), class_="axis")]
    for tick in axis.ticks():
        y = axis.at(tick)
        parts.append(line((x - 4, y), (x, y), class_="axis"))
        parts.append(words(f"{tick + 0.0:.4g}", x - 6, y + 3.5, text_anchor="end", class_="small"))
    return parts


# Intervals


def marker(style: str, x: float, y: float) -> Element:
    """A circle for a policy, a square for the log, a diamond for anything else."""
    if style == "policy":
        return element("circle", cx=x, cy=y, r=5, class_="policy solid")
    if style == "log":
        return element("rect", x=x - 5, y=y - 5, width=10, height=10, class_="log solid")
    corners = f"{x},{y - 6} {x + 6},{y} {x},{y + 6} {x - 6},{y}"
    return element("polygon", points=corners, class_="neutral solid")


def interval(label: str, estimate: Estimate, style: str, axis: Axis, y: float) -> list[Element]:
    """A number with its interval, below its name."""
    parts = [words(label, axis.start, y - 10)]
    if not all(map(math.isfinite, estimate)):
        return [*parts, words("is not a finite number", axis.start, y + 4, class_="small")]
    low, value, high = (axis.at(n) for n in (estimate.low, estimate.value, estimate.high))
    parts.append(line((low, y), (high, y), class_=style))
    parts += [line((x, y - 5), (x, y + 5), class_=style) for x in (low, high)]
    return [*parts, marker(style, value, y)]


def intervals(
    policy: Estimate, behaviour: Estimate, difference: Estimate, margin: float
) -> Element:
    """Two values on one axis and, below, their difference on another one with a line at 0."""
    values = Axis.over([*policy, *behaviour], 10.0, RIGHT)
    change = Axis.over([*difference, 0.0], 10.0, RIGHT)
    zero = change.at(0.0)
    parts = [
        *interval("policy (circle)", policy, "policy", values, 32.0),
        *interval("behaviour that was logged (square)", behaviour, "log", values, 72.0),
        *horizontal(values, 88.0),
        line((zero, 146.0), (zero, 174.0), class_="mark"),
        *interval(
            "difference (diamond); dashed: 0, no difference", difference, "neutral", change, 152.0
        ),
        *horizontal(change, 174.0),
    ]
    if math.isfinite(margin) and change.low < -margin < 0:
        x = change.at(-margin)
        parts.append(line((x, 162.0), (x, 174.0), class_="mark"))
    told = [
        f"{name} {one.value:.5g} ({one.low:.5g} to {one.high:.5g})"
        for name, one in (("Policy", policy), ("behaviour", behaviour), ("difference", difference))
    ]
    title = "Values with their 95% intervals"
    return picture(title, f"{', '.join(told)}.", 194.0, *parts)


def gauge(title: str, value: float, marks: Sequence[tuple[float, str]]) -> Element:
    """A number on an axis from 0, with named marks."""
    known = min(value, LARGEST) if math.isfinite(value) else 0.0
    axis = Axis(0.0, max(4.0, 1.1 * known), 10.0, RIGHT)
    parts = horizontal(axis, 50.0)
    for level, (number, name) in enumerate(marks):
        x = axis.at(number)
        place, anchor = (x + 4, "start") if x < WIDTH / 2 else (x - 4, "end")
        parts.append(line((x, 14.0 + 12 * level), (x, 50.0), class_="mark"))
        parts.append(words(name, place, 20.0 + 12 * level, text_anchor=anchor, class_="small"))
    if math.isfinite(value):
        parts.append(marker("policy", axis.at(value), 44.0))
    named = ", ".join(f"{name}: {number:g}" for number, name in marks)
    return picture(title, f"It is {value:.3g}; {named}.", 70.0, *parts)


# Lines


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most as many points as a small picture can show: means of equally many, in order."""
    if len(points) <= POINTS:
        return list(points)
    parts = np.array_split(np.array(points, float), POINTS)
    with np.errstate(invalid="ignore", over="ignore"):  # the mean of infinite numbers
        return [(float(x), float(y)) for x, y in (part.mean(axis=0) for part in parts)]


def pieces(points: Sequence[Point]) -> list[list[Point]]:
    """The points in runs without a number that is not finite."""
    found: list[list[Point]] = [[]]
    for point in points:
        if all(map(math.isfinite, point)):
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def curve(title: str, points: Sequence[Point], across: str = "updates") -> Element:
    """A line through points; where a number is not finite, the line is broken."""
    shown = pieces(thinned(points))
    known = [point for run in shown for point in run]
    x_axis = Axis.over([0.0, *(x for x, _ in known)], LEFT, RIGHT)
    x_axis = Axis(0.0, x_axis.high, LEFT, RIGHT)
    y_axis = Axis.over([y for _, y in known], BOTTOM, TOP)
    parts = [*vertical(y_axis, LEFT), *horizontal(x_axis, BOTTOM, across)]
    for run in shown:
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in run]
        if len(places) == 1:
            parts.append(
                element("circle", cx=places[0][0], cy=places[0][1], r=2.5, class_="policy")
            )
        joined = " ".join(f"{plain(x)},{plain(y)}" for x, y in places)
        parts.append(element("polyline", points=joined, class_="policy"))
    told = "There is no finite number."
    if known:
        (first, start), (last, stop) = known[0], known[-1]
        told = f"From {start:.4g} at {first:,.0f} to {stop:.4g} at {last:,.0f} {across}."
    if len(points) > POINTS:
        told += f" Points are means; {len(points):,} numbers were recorded."
    return picture(title, told, BOTTOM + 30, *parts)


# Distributions


def counts_in(values: NDArray[np.floating], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many values are between each two edges; what is beyond or not finite is not counted."""
    finite = np.asarray(values, np.float64)
    return np.histogram(finite[np.isfinite(finite)], edges)[0].astype(np.int64)


def histogram(
    title: str,
    edges: NDArray[np.float64],
    logged: NDArray[np.int64],
    taken: NDArray[np.int64] | None = None,
) -> Element:
    """Shares in bins: filled for the log, and a line for the policy."""
    series = [logged] if taken is None else [logged, taken]
    shares = [counts / max(1, int(counts.sum())) for counts in series]
    x_axis = Axis(float(edges[0]), float(edges[-1]), LEFT, RIGHT)
    y_axis = Axis(0.0, 1.05 * max(0.01, *(float(s.max()) for s in shares)), BOTTOM, TOP)
    parts = [*vertical(y_axis, LEFT), *horizontal(x_axis, BOTTOM)]
    ends = [x_axis.at(float(edge)) for edge in edges]
    for (left, right), share in zip(pairwise(ends), shares[0].tolist(), strict=True):
        y = y_axis.at(share)
        size = {"width": round(right - left, 2), "height": round(BOTTOM - y, 2)}
        parts.append(element("rect", x=left, y=y, class_="log solid", **size))
    if taken is not None:
        tops = [y_axis.at(share) for share in shares[1].tolist()]
        corners = [(ends[0], BOTTOM)]
        for (left, right), y in zip(pairwise(ends), tops, strict=True):
            corners += [(left, y), (right, y)]
        joined = " ".join(f"{plain(x)},{plain(y)}" for x, y in [*corners, (ends[-1], BOTTOM)])
        parts.append(element("polyline", points=joined, class_="policy"))
    told = f"From {edges[0]:.4g} to {edges[-1]:.4g}. Shares of the log in each bin: "
    told += in_percent(shares[0])
    if taken is not None:
        told += f"; of the policy: {in_percent(shares[1])}"
    return picture(title, f"{told}.", BOTTOM + 20, *parts)


def in_percent(shares: NDArray[np.float64]) -> str:
    """Shares in words."""
    return ", ".join(f"{share:.0%}" for share in shares.tolist())


def shortened(name: str) -> str:
    """A name that fits a line of a narrow screen."""
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def bars(
    title: str, names: Sequence[str], logged: NDArray[np.int64], taken: NDArray[np.int64]
) -> Element:
    """For each choice how often the policy takes it, above how often the log has it."""
    axis = Axis(0.0, 1.0, 10.0, 255.0)
    shares = [counts / max(1, int(counts.sum())) for counts in (taken, logged)]
    parts, told, y = [], [], 0.0
    for name, of_policy, of_log in zip(names, *(s.tolist() for s in shares), strict=True):
        parts.append(words(shortened(name), 10.0, y + 12))
        for share, style, top in ((of_policy, "policy", y + 16), (of_log, "log", y + 28)):
            size = {"width": round(axis.at(share) - axis.start, 2), "height": BAR}
            parts.append(element("rect", x=10.0, y=top, class_=f"{style} solid", **size))
            label = f"{share:.1%} {style}"
            parts.append(words(label, axis.at(share) + 4, top + 8, class_="small"))
        told.append(f"{name}: policy {of_policy:.1%}, log {of_log:.1%}")
        y += 44
    return picture(title, f"{'; '.join(told)}.", y, *parts)
