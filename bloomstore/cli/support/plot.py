"""The picture of a plan: bits per key and error, over the number of keys.

In: the chains of all layouts, out: an image file of the kind that its name says. matplotlib is an
extra, imported only here and drawn without a screen.
"""

from __future__ import annotations

import collections.abc as abc
from pathlib import Path

from bloomstore import GrowthStep
from bloomstore.cli.support.arguments import UsageError

# Forty per stage make a smooth curve; thousands of stages are one by themselves.
MOST_POINTS, POINTS_PER_STAGE = 4000, 40
# The curves begin where the first vector is this full; before, bits per key mean nothing.
FIRST_SHARE = 0.2
# The lowest error that is drawn, as a share of the largest: lower ones would flatten the curves.
LOWEST_SHARE = 1e-5
# Colours and dashes of the layouts, in their order. Plain and sliced vectors are nearly the same:
# dots on a line show both where they are.
_LOOKS = (
    ("black", (0, (1, 3))),
    ("tab:green", "-"),
    ("tab:red", "-"),
    ("tab:blue", "-"),
    ("tab:purple", "-"),
)


def draw(
    chains: dict[str, list[GrowthStep]],
    chosen: str,
    target_error: float | None,
    path: Path,
) -> None:
    """Draws the curves of every layout into a file. Raises UsageError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--plot needs matplotlib: install bloomstore[plot]") from None
    figure = Figure(figsize=(9, 7), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    space, wrong = figure.subplots(2, 1, sharex=True)
    # In reverse: plain comes last, so that its dots lie on the line of sliced.
    for (layout, steps), (colour, dashes) in reversed([*zip(chains.items(), _LOOKS, strict=False)]):
        keys, bits, errors = curve(steps)
        looks = {
            "color": colour,
            "linewidth": 2.2 if layout == chosen else 1.1,
            "linestyle": dashes,
            "label": f"{layout} (chosen)" if layout == chosen else layout,
        }
        space.plot(keys, bits, **looks)
        wrong.plot(keys, errors, **looks)
    full = [step.bits_per_key for steps in chains.values() for step in steps]
    space.set_ylim(0, 3 * max(full))
    space.set_ylabel("bits per key")
    space.set_title("space: a new stage is a step up, keys bring it down again")
    wrong.set_yscale("log")
    highest = max([target_error or 0.0, *(steps[-1].error for steps in chains.values())])
    wrong.set_ylim(LOWEST_SHARE * highest, min(1.0, 3 * highest))
    wrong.set_ylabel("error: share of absent keys answered 'maybe'")
    wrong.set_xlabel("keys")
    wrong.set_title("error: rises while a stage fills")
    if target_error is not None:
        wrong.axhline(target_error, color="tab:orange", linestyle="--", label="target error")
    for axes in (space, wrong):
        axes.set_xscale("log")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend()
    try:
        figure.savefig(path)
    except ValueError as error:
        raise UsageError(f"--plot {path}: {error}") from None


def curve(steps: abc.Sequence[GrowthStep]) -> tuple[list[float], list[float], list[float]]:
    """Keys, bits per key and error, from the first keys to the last stage's last."""
    keys: list[float] = []
    bits: list[float] = []
    errors: list[float] = []
    before, error_before = 0, 0.0
    points = max(1, min(POINTS_PER_STAGE, MOST_POINTS // len(steps)))
    for step in steps:
        for point in range(points + 1):
            share = point / points
            if not before:
                share = FIRST_SHARE ** (1.0 - share)
            now = share * step.stage_keys
            keys.append(before + now)
            bits.append(step.bits / (before + now))
            error_here = step.geometry.error_with(now)
            errors.append(error_before + error_here - error_before * error_here)
        before, error_before = step.keys, step.error
    return keys, bits, errors
