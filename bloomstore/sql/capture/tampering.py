"""Whether another listener changed a statement between SQLAlchemy and the driver.

In: SQLAlchemy's execution context, the text and the parameters that the driver gets. A comment that
a listener adds is not a change.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine.interfaces import ExecuteStyle

from bloomstore.sql.databases.tokens import statements_of
from bloomstore.sql.sqlalchemy_private import bind_processors_of


def is_another(context: Any, statement: str) -> bool:
    """Whether the text that is sent is more than SQLAlchemy's own and comments."""
    if statement is context.statement:
        return False
    before, found, behind = statement.partition(context.statement)
    if not found:
        return True
    dialect = context.dialect.name
    first = statements_of(f"{before} SELECT", dialect)  # an open comment would swallow the word
    return (
        first is None
        or [each.texts for each in first] != [["SELECT"]]
        or (statements_of(behind, dialect) != [])
    )


def is_replaced(context: Any, statement: str, sent: Any) -> bool:
    """Whether a statement is sent with other text, or other values, than SQLAlchemy has made.

    Of many rows in one statement only the values are compared, wherever they stand.
    """
    made = [_values(context, parameters) for parameters in context.compiled_parameters]
    if context.execute_style is ExecuteStyle.INSERTMANYVALUES:
        known = {value for row in made for value in row.values() if _is_hashable(value)}
        given = sent.values() if isinstance(sent, dict) else sent
        found = statements_of(statement, context.dialect.name)
        return (
            found is None
            or len(found) != 1
            or any(_is_hashable(value) and value not in known for value in given)
        )
    if is_another(context, statement):
        return True
    names = context.compiled.escaped_bind_names or {}
    rows = sent if context.execute_style is ExecuteStyle.EXECUTEMANY else [sent]
    for row, values in zip(rows, made, strict=True):
        if isinstance(row, dict):
            expected: Any = {names.get(name, name): value for name, value in values.items()}
        else:
            row, expected = list(row), [values[name] for name in context.compiled.positiontup]
        if _differ(row, expected):
            return True
    return False


def _differ(row: Any, expected: Any) -> bool:
    try:
        return bool(row != expected)
    except Exception:  # noqa: BLE001  arrays have no truth, and others compare as they like
        return True


def _values(context: Any, parameters: Any) -> dict[str, Any]:
    processors = bind_processors_of(context.compiled)
    return {
        name: processors[name](value) if name in processors else value
        for name, value in parameters.items()
    }


def _is_hashable(value: object) -> bool:
    return getattr(type(value), "__hash__", None) is not None
