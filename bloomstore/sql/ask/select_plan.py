"""Which SELECT a guard may answer: a plan per shape of statement, cached by its cache key.

A statement is answered only if no row can come out of it when a key is absent:
  1. it is one SELECT of columns and entities; no aggregate, no function, no DML, no FOR UPDATE;
  2. one of the terms that its WHERE joins by AND is `column = bind` or `column IN (binds)` on the
     bare guarded column; for a composite key, one `column = bind` for each of its columns;
  3. the bind has the type of the column;
  4. every element is one of SQLAlchemy's own and is rendered in parentheses where AND needs them:
     text, hints, and elements or operators of the application are rendered as they are, so that
     `id = :id` and the text `a OR b` become `id = :id AND a OR b`.
Where the table stands among the FROMs does not matter: a term of the top-level WHERE that is not
true removes the row, also one that an outer join has filled with NULL.

All other statements are sent. Not here: whether the session allows an answer (eligibility.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Join, Select, Table
from sqlalchemy.engine.result import Result, SimpleResultMetaData
from sqlalchemy.orm import QueryableAttribute
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.elements import (
    BinaryExpression,
    BindParameter,
    BooleanClauseList,
    ColumnElement,
    Grouping,
    TextClause,
)
from sqlalchemy.sql.selectable import TextualSelect

from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import (
    are_sent_alike,
    clone_of,
    columns_of,
    criteria_of,
    empty_result,
    entity_of,
    has_bind_expression,
    has_column_expression,
    has_own_rendering,
    is_bare_select,
    plain_column,
    sources_of,
    with_criteria,
)

# Top-level modules of the classes that SQLAlchemy renders by itself.
_RENDERED = frozenset("sqlalchemy builtins typing abc".split())


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Which binds of a statement are the key of which guard."""

    guard: ActiveGuard
    places: tuple[int, ...]  # indexes into the binds of the cache key
    is_list: bool
    columns: SimpleResultMetaData
    has_entities: bool  # their relationships may use any bind

    def empty(self) -> Result[Any]:
        """The result of the database for an absent key: these columns and no row."""
        return empty_result(self.columns)


def plan_read(
    statement: Any, binds: list[BindParameter[Any]], guards_of: Callable[[Table], list[ActiveGuard]]
) -> ReadPlan | None:
    """The plan of one statement; None: it is sent."""
    if not isinstance(statement, Select) or not _returns_plain_rows(statement):
        return None
    if not is_transparent(statement):
        return None
    equal: dict[Column[Any], BindParameter[Any]] = {}
    listed: dict[Column[Any], BindParameter[Any]] = {}
    for term in _terms(criteria_of(statement)):
        comparison = _comparison(term)
        if comparison is not None:
            column, bind, is_list = comparison
            (listed if is_list else equal).setdefault(column, bind)
    descriptions = statement.column_descriptions
    columns = SimpleResultMetaData(
        [each["name"] for each in descriptions], [_named_by(each["expr"]) for each in descriptions]
    )
    places = {bind.key: place for place, bind in enumerate(binds)}
    for kind, is_list in ((equal, False), (listed, True)):
        for column in kind:
            for guard in guards_of(column.table):
                wanted = [each.name for each in guard.declared.columns]
                found_binds = [
                    bind
                    for name in wanted
                    for each, bind in kind.items()
                    if each.name == name and each.table is column.table
                ]
                if len(found_binds) != len(wanted) or (is_list and len(wanted) > 1):
                    continue
                declared = guard.declared.columns
                if not all(
                    map(are_sent_alike, (each.type for each in found_binds), _types(declared))
                ):
                    continue
                if is_list and _count(statement, found_binds[0]) > 1:
                    continue  # a shorter list would also shorten its other uses
                if all(bind.key in places for bind in found_binds):
                    return ReadPlan(
                        guard,
                        tuple(places[bind.key] for bind in found_binds),
                        is_list,
                        columns,
                        not all(isinstance(each, Column) for each in columns_of(statement)),
                    )
    return None


def is_transparent(element: Any) -> bool:
    """Whether SQLAlchemy alone renders every part of an element, and no part writes."""
    return all(map(_is_known, visitors.iterate(element)))


def _is_known(element: Any) -> bool:
    if isinstance(element, (UpdateBase, TextualSelect, TextClause)):
        return False  # a common table expression may write
    if getattr(element, "is_literal", False):
        return False
    used = (getattr(element, "operator", None), getattr(element, "modifier", None))
    if any(isinstance(each, operators.custom_op) for each in used):
        return False
    type_ = getattr(element, "type", None)
    if has_bind_expression(type_) or has_column_expression(type_):
        return False  # a function of SQL around each value, or in place of the column
    # Classes that SQLAlchemy makes for annotations are in its modules, their bases are not; and
    # @compiles may have replaced how one of SQLAlchemy's own is rendered.
    return all(
        each.__module__.partition(".")[0] in _RENDERED and not has_own_rendering(each)
        for each in type(element).__mro__
    )


def _types(columns: tuple[Column[Any], ...]) -> Iterator[Any]:
    return (column.type for column in columns)


def _count(statement: Any, bind: BindParameter[Any]) -> int:
    """How often a bind of this key occurs in the statement."""
    return sum(
        isinstance(element, BindParameter) and element.key == bind.key
        for element in visitors.iterate(statement)
    )


def _named_by(expression: Any) -> tuple[Any, ...]:
    """Keys besides the name under which a result finds the column."""
    if isinstance(expression, QueryableAttribute):
        return expression, expression.expression
    return (expression,)


def with_values(statement: Any, key: str, values: list[Any]) -> Any:
    """The same statement with other values in the IN list whose bind has this key.

    The bind gets another name: options and relationships may use the old one, with all values.
    """

    def changed(term: Any) -> Any:
        if isinstance(term, BinaryExpression) and getattr(term.right, "key", None) == key:
            term = clone_of(term)
            term.right = _list_of(values, term.right)
        elif isinstance(term, (BooleanClauseList, Grouping)):
            term = clone_of(term)
            if isinstance(term, Grouping):
                term.element = changed(term.element)
            else:
                term.clauses = list(map(changed, term.clauses))
        return term

    return with_criteria(statement, tuple(map(changed, criteria_of(statement))))


def _list_of(values: list[Any], like: BindParameter[Any]) -> BindParameter[Any]:
    """A new bind. A copy of the old one would pass for it where compiled statements are cached."""
    bind: BindParameter[Any] = BindParameter(
        None,
        values,
        type_=like.type,
        unique=True,
        expanding=True,
        literal_execute=like.literal_execute,
    )
    bind.expand_op = like.expand_op
    return bind


def _returns_plain_rows(statement: Select[Any]) -> bool:
    return (
        is_bare_select(statement)  # without GROUP BY: ROLLUP has a row for nothing
        and all(map(_is_made_of_tables, sources_of(statement)))
        and all(map(_is_plain, columns_of(statement)))
    )


def _is_made_of_tables(element: Any) -> bool:
    """Whether this is a table or a join of tables; others may replace columns when compiled."""
    if isinstance(element, Join):
        return _is_made_of_tables(element.left) and _is_made_of_tables(element.right)
    return isinstance(element, Table)


def _is_plain(element: Any) -> bool:
    """Whether an element is a column or an entity of one table: no row, no value of it."""
    mapper = getattr(entity_of(element), "mapper", None)
    if mapper is not None and (mapper.concrete or mapper.with_polymorphic is not None):
        return False
    is_entity = mapper is not None and not isinstance(element, ColumnElement)
    return is_entity or isinstance(element, (Column, Table))


def _terms(criteria: Any) -> Iterator[Any]:
    """The terms that a WHERE joins by AND."""
    for term in criteria:
        if isinstance(term, Grouping):
            yield from _terms((term.element,))
        elif isinstance(term, BooleanClauseList) and term.operator is operators.and_:
            yield from _terms(term.clauses)
        else:
            yield term


def _comparison(term: Any) -> tuple[Column[Any], BindParameter[Any], bool] | None:
    if not isinstance(term, BinaryExpression):
        return None
    left, right = term.left, term.right
    if term.operator is operators.eq:
        if isinstance(left, BindParameter):
            left, right = right, left
        is_list = False
    elif term.operator is operators.in_op:
        is_list = True
    else:
        return None
    column = plain_column(left) if isinstance(left, Column) else None
    if not isinstance(column, Column) or not isinstance(column.table, Table):
        return None
    if not isinstance(right, BindParameter) or right.expanding is not is_list:
        return None
    if not are_sent_alike(right.type, column.type):
        return None
    return column, right, is_list
