"""Ranges of an integer column, which several connections read side by side.

    least   ...   most        ->   (.., a)  [a, b)  [b, ..)

The outer ones are open, so that together they are every value there can be, whatever is written
after the least and the most one were asked for.

They need no common snapshot. A value that was committed before the snapshot of its range is read;
one that came later was written by a writer that adds to the coming chain. A row can move from a
range that is not read yet to one that is only by an update of this very column, which its writer
adds. (So it is always the column of the keys that is divided, never another one.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, bindparam
from sqlalchemy.types import NullType


class Range(NamedTuple):
    """Values from `first` to before `end`, None where it is open; `last`: read up to there."""

    first: int | None
    end: int | None
    last: int | str | None = None

    def condition(self, column: ColumnElement[Any]) -> list[ColumnElement[bool]]:
        """The condition for the rest of the range; rows with the last value come again."""
        start = self.first if self.last is None else self.last
        conditions = [] if start is None else [column >= bound(start)]
        return conditions if self.end is None else [*conditions, column < bound(self.end)]


def divided(least: int, most: int, parts: int) -> list[Range]:
    """This many ranges of about the same width; fewer if there are fewer values."""
    width = most - least + 1
    inner = sorted({least + width * part // parts for part in range(1, parts)} - {least})
    return [Range(first, end) for first, end in zip([None, *inner], [*inner, None], strict=True)]


def bound(value: Any) -> ColumnElement[Any]:
    """A value for the driver as it is."""
    return bindparam(None, value, NullType(), unique=True)
