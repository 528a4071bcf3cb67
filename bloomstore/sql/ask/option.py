"""Guarded(): the option by which a query asks to be guarded."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import UserDefinedOption


class Guarded(UserDefinedOption):
    """select(...).options(Guarded()): no SQL is sent when a guard knows that no row can come."""

    propagate_to_loaders = False


def is_guarded(statement: Any) -> bool:
    """Whether the statement has the option."""
    try:
        options = statement._with_options
    except AttributeError:
        return False
    return Guarded in map(type, options)
