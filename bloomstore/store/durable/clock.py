"""How long a stage was open, by a clock that cannot be set.

Within one boot of the machine that is the time since it started, sleep included. Across boots there
is only the wall clock, which may have been set back or forward meanwhile: its difference is taken
if it is positive, and ByRate bounds the effect of a wrong one.

In: the row of a stage, out: seconds, or None where no clock can tell.
"""

from __future__ import annotations

import time

from bloomstore.catalog.rows import StageRow

# A stage that fills faster counts as filled in this time: clocks and commits are no finer.
LEAST_SECONDS = 1e-3


def since_boot() -> float:
    """Seconds since the machine was started; on macOS without the time that it slept."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


def seconds_open(stage: StageRow, boot: str) -> float | None:
    """How long a stage has been open until now, in this boot of the machine."""
    if stage.opened_boot == boot and stage.opened_clock is not None:
        seconds = since_boot() - stage.opened_clock
    else:
        seconds = time.time() - stage.opened_at
    return max(seconds, LEAST_SECONDS) if seconds > 0.0 else None


def arrival_rate(stage: StageRow) -> float | None:
    """New keys per second while a stage filled; None where it is not known how long that took."""
    if stage.filled_at is None or not stage.filled_at > stage.opened_at:
        return None
    return stage.spec.capacity / (stage.filled_at - stage.opened_at)
