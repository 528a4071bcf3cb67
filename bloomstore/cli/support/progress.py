"""A progress bar on standard error, for long inputs read at a terminal.

Nothing is shown in the first second, nor when standard error is not a terminal; so short inputs
and pipes stay silent. rich draws the bar where it is installed, else one line is rewritten.

    with Progress(total_bytes) as progress:
        progress.advance(keys, bytes_read)
    with Progress(total_rows, unit="rows") as progress:
        progress.reach(rows)
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from bloomstore.cli.support.numbers import count, size

WAIT_SECONDS = 1.0
REDRAW_SECONDS = 0.2


class Progress:
    """Counts keys or rows, and draws them from time to time.

    The total, which may be unknown, is in bytes when `unit` is "keys", and in rows otherwise.
    """

    def __init__(self, total: int | None, *, unit: str = "keys", is_wanted: bool = True) -> None:
        self.keys = 0
        self.done = 0
        self._total = total
        self._unit = unit
        self._before = 0  # rows of an interrupted attempt
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._started = time.monotonic()
        self._drawn = self._started + WAIT_SECONDS - REDRAW_SECONDS
        self._line_length = 0
        self._bar: Any = None
        self._task: Any = None

    def advance(self, keys: int, bytes_read: int) -> None:
        """Counts keys that were processed, and the bytes they came from."""
        self.keys += keys
        self.done += bytes_read
        self._draw_if_due()

    def expect(self, total: int | None) -> None:
        """Sets the total."""
        self._total = total

    def reach(self, rows: int) -> None:
        """Sets the number of rows that were processed, earlier attempts included."""
        if not self.keys:
            self._before = rows
        self.keys = self.done = rows
        self._draw_if_due()

    def _draw_if_due(self) -> None:
        now = time.monotonic()
        if self._is_wanted and now >= self._drawn + REDRAW_SECONDS:
            self._drawn = now
            self._draw(now - self._started)

    def _draw(self, seconds: float) -> None:
        rate = (self.keys - self._before) / seconds
        text = f"{count(self.keys)} {self._unit}, {count(round(rate))}/s"
        if self._bar is None and self._line_length == 0:
            self._bar = _rich_bar()
            if self._bar is not None:
                self._task = self._bar.add_task(text, total=self._total)
                self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=text)
            return
        if self._total:
            share = min(1.0, self.done / self._total)
            of = size(self._total) if self._unit == "keys" else count(self._total)
            text += f", {share:.0%} of {of}"
            if self._unit == "rows" and rate:
                text += f", {count(max(0, round((self._total - self.done) / rate)))} s left"
        print(f"\r{text.ljust(self._line_length)}", end="", file=sys.stderr, flush=True)
        self._line_length = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._line_length:
            print(f"\r{' ' * self._line_length}\r", end="", file=sys.stderr, flush=True)


def _rich_bar() -> Any:
    """A bar of rich that disappears when it is done; None where rich is not installed."""
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
