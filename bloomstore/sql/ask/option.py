"""Guarded(): the option by which a query asks to be guarded.

Under the policy `explicit` only statements with this option are answered.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import UserDefinedOption

from bloomstore.sql.sqlalchemy_private import options_of


class Guarded(UserDefinedOption):
    """select(...).options(Guarded()): no SQL is sent when a guard knows that no row can come."""

    propagate_to_loaders = False


def is_guarded(statement: Any) -> bool:
    """Whether the statement has the option."""
    return Guarded in map(type, options_of(statement))
