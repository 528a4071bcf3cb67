"""The answer of a guard: ABSENT is certain, MAYBE comes from the filter, UNKNOWN has a reason.

The reason of an UNKNOWN is a text for people; no code decides by it.
"""

from __future__ import annotations

from typing import ClassVar, Final


class Answer:
    """The answer to one lookup.

    answer = plugin.probe(User.email, "a@b.c")
    if answer is Answer.ABSENT: ...      # no committed row has this key
    answer == Answer.UNKNOWN             # whatever the reason
    answer.reason                        # why, for UNKNOWN
    """

    __slots__ = ("name", "reason")

    ABSENT: ClassVar[Answer]
    MAYBE: ClassVar[Answer]
    UNKNOWN: ClassVar[Answer]

    def __init__(self, name: str, reason: str = "") -> None:
        self.name: Final = name
        self.reason: Final = reason

    @classmethod
    def unknown(cls, reason: str) -> Answer:
        """UNKNOWN for this reason."""
        return cls("UNKNOWN", reason)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __bool__(self) -> bool:
        raise TypeError("an Answer is neither true nor false: compare it with Answer.ABSENT")

    def __repr__(self) -> str:
        return f"<Answer {self.name}{f': {self.reason}' if self.reason else ''}>"


Answer.ABSENT = Answer("ABSENT")
Answer.MAYBE = Answer("MAYBE")
Answer.UNKNOWN = Answer("UNKNOWN")
