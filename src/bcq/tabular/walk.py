"""A walk through the paper's theory: `bcq theory`."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bcq.system import interruption
from bcq.system.errors import require_seed
from bcq.system.files import make_directory, replacing
from bcq.system.progress import Progress
from bcq.tabular.illustrations import (
    DISCOUNTS,
    HEIGHT,
    WALLS,
    WIDTH,
    Grid,
    counterexample,
    learn_grid,
    measure_causes,
)
from bcq.tabular.mdp import Doubles
from bcq.tabular.theorems import STATEMENTS, largest


def walk(directory: Path, *, seed: int) -> bool:
    """Prints the theory with numbers, draws it, and returns whether every statement held."""
    require_seed(seed)
    make_directory(directory)
    held = kernel_counterexample()
    grid = learn_grid(seed)
    describe_grid(grid)
    causes = measure_causes(seed)
    describe_causes(causes)
    held &= check_statements(seed)
    pictures = {
        "grid_values.png": draw_values(grid),
        "grid_error.png": draw_error(grid),
        "causes.png": draw_causes(causes),
    }
    print("\nPictures")
    for name, figure in pictures.items():
        with replacing(directory / name) as temporary:
            figure.savefig(temporary, format="png")
        print(f"  {directory / name}")
    return held


def kernel_counterexample() -> bool:
    """Figure 6: KBRL fails on optimal data, BCQL does not. Returns whether this was the case."""
    results = [counterexample(discount) for discount in DISCOUNTS]
    result, stands = results[-1], all(one.stands for one in results)
    q, actions, chosen = result.kernel_q, result.kernel_actions, result.bcql_actions
    true = result.true_values
    print(
        "Figure 6: two states, two actions; the batch is the two tuples of the optimal policy\n"
        f"  gamma = {result.discount}: the true values on the batch are Q(s0,a1) = 1/(1-gamma^2) = "
        f"{true[0]:.4f}, Q(s1,a0) = {true[1]:.4f}\n"
        f"  KBRL   Q(s0,.) = {q[0].round(4)}  Q(s1,.) = {q[1].round(4)}\n"
        f"         it takes a{actions[0]} in s0 and a{actions[1]} in s1: "
        f"a{actions[1]} is not in the batch at s1; it stays there without reward\n"
        f"  BCQL   Q(s0,a1) = {result.bcql_q[0, 1]:.4f}  Q(s1,a0) = {result.bcql_q[1, 0]:.4f}\n"
        f"         it takes a{chosen[0]} in s0 and a{chosen[1]} in s1: the optimal policy\n"
        f"  {'holds' if stands else 'FAILS'} at gamma = {', '.join(map(str, DISCOUNTS))}; "
        f"KBRL is off Eq. 21 by at most {largest(*(r.kernel_values_off_by for r in results)):.0e}, "
        f"BCQL is off the truth by {largest(*(r.bcql_values_off_by for r in results)):.0e}"
    )
    return stands


def describe_grid(grid: Grid) -> None:
    """The value of the start state: estimated, and true."""
    seen = int(grid.batch.pairs.sum())
    pairs = 4 * (int(grid.free.sum()) - 1)
    print(
        f"\nA grid in which each step costs 1; {len(grid.batch)} logged steps in 3 episodes, "
        f"{seen} of {pairs} pairs seen, Q0 = 0\n"
        f"  {'value of the start':<22}{'estimate':>10}{'true value':>14}"
    )
    for name, label in (
        ("truth", "optimal policy"),
        ("Q-learning", "Q-learning on B"),
        ("BCQL", "BCQL on B"),
    ):
        print(f"  {label:<22}{grid.believed(name)[0]:>10.2f}{grid.worth[name][0]:>14.2f}")
    print("  Q-learning overestimates actions that are not in the batch; BCQL's estimate is true.")


def describe_causes(causes: dict[str, tuple[Doubles, Doubles]]) -> None:
    """One line per cause, from its worst case to its best."""
    words = {
        "absent data": ("of the pairs in the batch", "{:.0%}"),
        "model bias": ("tuples per pair (Eq. 4)", "{:.0f}"),
        "training mismatch": ("of the data from the policy itself (Eq. 5)", "{:.0%}"),
    }
    print("\nCauses of extrapolation error (Section 3; total error, Eq. 9)")
    for name, (amounts, errors) in causes.items():
        text, form = words[name]
        first, last = (form.format(amounts[i]) for i in (0, -1))
        print(f"  {name:<18}{errors[0]:8.3f} at {first}, {errors[-1]:.3f} at {last} {text}")


def check_statements(seed: int) -> bool:
    """The table of statements. Returns whether all hold."""
    print("\nStatements, checked on random MDPs")
    rows, held = [], True
    total = sum(statement.cases for statement in STATEMENTS)
    with Progress("checking", total, "MDP") as bar:
        for statement in STATEMENTS:
            worst = 0.0
            for violation in statement.violations(seed):
                worst = largest(worst, violation)
                bar.advance()
                interruption.check()
            holds = worst <= statement.tolerance
            held &= holds
            rows.append(
                f"  {statement.name:<12}{statement.says:<52}{statement.cases:>4} MDPs  "
                f"{'holds' if holds else 'FAILS'}, off by at most {worst:.0e}"
            )
    print("\n".join(rows))
    return held


ARROWS = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])


def panel(axes: Axes, grid: Grid, name: str, title: str, values: Doubles, **colours: Any) -> Any:
    """The grid in colours: dark walls, and a question mark where the batch has no action."""
    axes.set_title(title, fontsize=10)
    axes.set_facecolor("white")
    axes.set(xticks=[], yticks=[])
    shown = np.where(grid.free & grid.defined(name), values, np.nan).reshape(HEIGHT, WIDTH)
    picture = axes.imshow(shown, origin="lower", **colours)
    for x, y in WALLS:
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color="0.35", lw=0))
    for state in np.flatnonzero(grid.free & ~grid.defined(name)).tolist():
        axes.text(state % WIDTH, state // WIDTH, "?", ha="center", va="center", color="0.5")
    goal = int(np.flatnonzero(grid.mdp.terminal)[0])
    axes.text(goal % WIDTH, goal // WIDTH, "goal", ha="center", va="center", fontsize=8)
    return picture


def draw_values(grid: Grid) -> Figure:
    """Values, with arrows for the policy: truth, Q-learning on the batch, BCQL."""
    figure = Figure(figsize=(10, 2.9), dpi=150, layout="constrained")
    panels = figure.subplots(1, 3)
    titles = {
        "truth": "truth",
        "Q-learning": "believed by Q-learning on the batch",
        "BCQL": "believed, and earned, by BCQL",
    }
    lowest = min(grid.believed(name)[grid.free].min() for name in titles)
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        values = grid.believed(name)
        picture = panel(axes, grid, name, title, values, cmap="viridis", vmin=lowest, vmax=0)
        for state in np.flatnonzero(grid.free & grid.defined(name) & ~grid.mdp.terminal):
            x, y = state % WIDTH, state // WIDTH
            shade = "white" if values[state] < lowest * 0.45 else "black"
            dx, dy = 0.22 * ARROWS[grid.policies[name][state].argmax()]
            arrow = {"arrowstyle": "->", "color": shade, "lw": 1.2}
            axes.annotate("", (x + dx, y + dy + 0.14), (x - dx, y - dy + 0.14), arrowprops=arrow)
            text = f"{values[state]:.1f}"
            axes.text(x, y - 0.33, text, ha="center", va="center", fontsize=6.5, color=shade)
    figure.colorbar(picture, ax=panels, label="value", shrink=0.9)
    return figure


def draw_error(grid: Grid) -> Figure:
    """The true value of each learner's policy minus its estimate, in each state."""
    figure = Figure(figsize=(7.2, 2.9), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, name in zip(panels, ("Q-learning", "BCQL"), strict=True):
        error = grid.worth[name] - grid.believed(name)
        title = f"{name}: truth minus belief (Eq. 7)"
        picture = panel(axes, grid, name, title, error, cmap="RdBu", vmin=-20, vmax=20)
        for state in np.flatnonzero(grid.free & grid.defined(name) & ~grid.mdp.terminal):
            shade = "white" if abs(error[state]) > 10 else "black"
            place = (state % WIDTH, state // WIDTH, f"{error[state]:.0f}")
            axes.text(*place, ha="center", va="center", fontsize=8, color=shade)
    figure.colorbar(picture, ax=panels, label="extrapolation error", shrink=0.9)
    return figure


def draw_causes(causes: dict[str, tuple[Doubles, Doubles]]) -> Figure:
    """The error as a function of the amount of each cause."""
    figure = Figure(figsize=(10, 2.9), dpi=150, layout="constrained")
    labels = {
        "absent data": "share of pairs in the batch",
        "model bias": "N(s, a): tuples of each pair",
        "training mismatch": "share of on-policy data",
    }
    for axes, (name, (amounts, errors)) in zip(figure.subplots(1, 3), causes.items(), strict=True):
        axes.plot(amounts, errors, "o-", ms=4, color="#0072b2")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(labels[name])
        axes.set_ylabel("error of the policy's value")
        axes.spines[["top", "right"]].set_visible(False)
        if name != "model bias":
            axes.set_ylim(bottom=0)
            continue
        slope = errors[-1] * np.sqrt(amounts[-1] / amounts)
        axes.loglog(amounts, slope, "--", color="0.5", label="proportional to 1/sqrt(N)")
        axes.legend(frameon=False)
    return figure
