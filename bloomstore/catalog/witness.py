"""The number of the last commit, in a word outside data.mdb.

A flipped bit in a meta page, or an older file put back, makes LMDB begin with an older commit, and
nothing in data.mdb can tell. So each commit leaves its number in the file `lock`, after it is
durable and before it is acknowledged. A crash may leave the word of an earlier commit, never of a
later one: a catalog whose last commit is less than the word says was rolled back.

    bits  0..47  number of the commit
    bits 48..63  check: the same bits of number * 0x9E3779B97F4A7C15; a word of garbage says nothing

Not here: the consequences of a rollback (store/durable/recovery.py).
"""

from __future__ import annotations

_NUMBER_BITS = 48
_MASK = (1 << _NUMBER_BITS) - 1
_FACTOR = 0x9E3779B97F4A7C15


class Witness:
    """One word of shared memory; a Witness without a word remembers nothing."""

    __slots__ = ("_is_writable", "_words")

    def __init__(self, words: memoryview | None = None) -> None:
        self._words = words
        self._is_writable = words is not None and not words.readonly

    @property
    def number(self) -> int:
        """The commit that the catalog must have at least; 0 if that is not known."""
        word = 0 if self._words is None else self._words[0]
        number = word & _MASK
        return number if word == _checked(number) else 0

    def set(self, number: int) -> None:
        """Notes that this commit is the last one."""
        if self._is_writable:
            self._words[0] = _checked(number)  # type: ignore[index]

    def raise_to(self, number: int) -> None:
        """The same, unless a later one is known: a rollback is not forgotten by a commit."""
        if number > self.number:
            self.set(number)


def _checked(number: int) -> int:
    return number | (number * _FACTOR & 0xFFFF << _NUMBER_BITS)
