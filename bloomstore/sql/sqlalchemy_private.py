"""The only file that touches SQLAlchemy's private names: one function per fact.

In: objects of SQLAlchemy. Out: plain facts about them. A release of SQLAlchemy that renames one of
these names breaks this file and tests/sql/test_private_names.py, and nothing else. Every name is
the same in 2.0.43 and 2.1 unless its function says otherwise.

Not here: any decision. The callers decide what a fact means for a lookup or a write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.engine import create
from sqlalchemy.engine.result import IteratorResult, Result, SimpleResultMetaData
from sqlalchemy.event.attr import _EmptyListener
from sqlalchemy.orm import Session
from sqlalchemy.orm.mapper import _all_registries
from sqlalchemy.pool import Pool, QueuePool, SingletonThreadPool
from sqlalchemy.pool.base import ResetStyle
from sqlalchemy.sql.cache_key import NO_CACHE
from sqlalchemy.util import EMPTY_DICT as NO_OPTIONS

# Sessions ----------------------------------------------------------------------------

# 2.1 has session.binds; 2.0 has the same mapping as session._Session__binds.
HAS_BINDS = hasattr(Session(), "binds")


def binds_of(session: Any) -> Any:
    """The session's engines by class or table."""
    return session.binds if HAS_BINDS else session._Session__binds


def is_clean(session: Any) -> bool:
    """Whether an autoflush would send nothing."""
    return not (session._new or session._deleted or session.identity_map._modified)


def is_clean_and_lacks(session: Any, kind: type, key: Any) -> bool:
    """Whether an autoflush would send nothing and no object of this class and key is loaded."""
    return is_clean(session) and (kind, (key,), None) not in session.identity_map._dict


def is_as_before(
    session: Any,
    kind: type,
    key: Any,
    mapper: Any,
    loan: Any,
    connection: Any,
    options: Mapping[str, Any],
) -> bool:
    """is_clean_and_lacks, for a mapper that is in use and a connection that the session still has.

    Several facts in one function: it runs for each absent `get` of an open transaction, and every
    further call would make that 6 % slower.
    """
    identities = session.identity_map
    loaded = identities._dict
    return not (
        session._new
        or session._deleted
        or identities._modified
        or (loaded and (kind, (key,), None) in loaded)
        or mapper._dispose_called
        or loan.dbapi_connection is None
        or loan._connection_record is None  # it is detached
        or connection._execution_options is not options
    )


def is_flushing(session: Any) -> bool:
    """Whether the session is in the middle of a flush: another one would raise."""
    return bool(session._flushing)


def is_idle(session: Any) -> bool:
    """Whether the session has no connection, and would get one by itself for a statement.

    One that was made with close_resets_only=False gets none once it is closed.
    """
    transaction = session._transaction
    if transaction is None:
        return bool(session.autobegin) and session._close_state.name != "CLOSED"
    return transaction._parent is None and not transaction._connections and transaction.is_active


def remaining_listeners(state: Any) -> Any:
    """The listeners of do_orm_execute that come after the one that is running."""
    return state._remaining_events()


def identity_class(mapper: Any) -> type:
    """The first part of the identity of a mapper's objects."""
    kind: type = mapper._identity_class
    return kind


def is_disposed(mapper: Any) -> bool:
    """Whether the class is no longer mapped by this mapper."""
    return bool(mapper._dispose_called)


def mappers_of(table: Any) -> list[Any]:
    """The mappers whose own table this is: no public way leads from a table to its classes."""
    return [
        mapper
        for registry in _all_registries()
        for mapper in registry.mappers
        if mapper.local_table is table
    ]


class OneExecution(Session):
    """A session whose execute, scalar and scalars come through one method: `before_execution`.

    For a statement without options this costs 0.3 to 0.8 us of 80: 1 %, as three overrides did.
    """

    def before_execution(
        self, statement: Any, parameters: Any, options: Any, bind_arguments: Any
    ) -> Result[Any] | tuple[Any, Any]:
        """The result, or the statement and the parameters to send instead."""
        raise NotImplementedError

    def send(self, statement: Any, parameters: Any, options: Any, bind_arguments: Any) -> Any:
        """Executes a statement as Session does."""
        return super()._execute_internal(
            statement, parameters, execution_options=options, bind_arguments=bind_arguments
        )

    def _execute_internal(
        self,
        statement: Any,
        params: Any = None,
        *,
        execution_options: Any = NO_OPTIONS,
        bind_arguments: Any = None,
        _parent_execute_state: Any = None,
        _add_event: Any = None,
        _scalar_result: bool = False,
    ) -> Any:
        # invoke_statement of a do_orm_execute listener comes here too, with a parent: the
        # statement was asked for before.
        if (
            type(params) is list or getattr(statement, "_with_options", True)
        ) and _parent_execute_state is None:
            before = self.before_execution(statement, params, execution_options, bind_arguments)
            if isinstance(before, Result):
                return before.scalar() if _scalar_result else before
            statement, params = before
        return super()._execute_internal(
            statement,
            params,
            execution_options=execution_options,
            bind_arguments=bind_arguments,
            _parent_execute_state=_parent_execute_state,
            _add_event=_add_event,
            _scalar_result=_scalar_result,
        )


# Statements --------------------------------------------------------------------------


def subject_of(statement: Any) -> Any:
    """The mapper that a session finds the engine of an ORM statement by, or None."""
    return statement._propagate_attrs.get("plugin_subject")


def options_of(statement: Any) -> tuple[Any, ...]:
    """The options of a statement; none for a statement that takes none."""
    options: tuple[Any, ...] = getattr(statement, "_with_options", ())
    return options


def has_own_values(statement: Any) -> bool:
    """Whether params() has given values that are in none of the binds."""
    return bool(getattr(statement, "_params", None))


def cache_key_of(statement: Any) -> Any:
    """The key and the binds of a statement; None if it must not be cached."""
    return statement._generate_cache_key()


_SIMPLE = frozenset(
    "_raw_columns _label_style _where_criteria _with_options _propagate_attrs"
    " _annotations _generate_cache_key".split()
)


def simple_parts(statement: Any) -> tuple[list[Any], tuple[Any, ...]] | None:
    """Columns and terms of a select() that has these and options, and nothing else; or None."""
    parts = statement.__dict__
    if not parts.keys() <= _SIMPLE:
        return None
    return parts["_raw_columns"], parts.get("_where_criteria", ())


def columns_of(statement: Any) -> Any:
    """The columns and entities of a SELECT, as they were given."""
    return statement._raw_columns


def criteria_of(statement: Any) -> Any:
    """The terms of WHERE."""
    return statement._where_criteria


def with_criteria(statement: Any, criteria: tuple[Any, ...]) -> Any:
    """A copy of the statement with another WHERE."""
    copy = statement._generate()
    copy._where_criteria = criteria
    return copy


def is_bare_select(statement: Any) -> bool:
    """Whether a SELECT has no FOR UPDATE, HAVING, GROUP BY, prefix, suffix, hint or loose CTE."""
    return not (
        statement._for_update_arg is not None
        or statement._having_criteria
        or statement._group_by_clauses
        or statement._prefixes
        or statement._suffixes
        or statement._hints
        or statement._statement_hints
        or statement._independent_ctes
    )


def sources_of(statement: Any) -> Any:
    """The tables and joins that select_from() and join() have named."""
    return statement._from_obj


def clone_of(element: Any) -> Any:
    """A copy of one element, which may be changed."""
    return element._clone()


def plain_column(column: Any) -> Any:
    """The column without the annotations of the ORM."""
    return column._deannotate() if hasattr(column, "_deannotate") else column


def entity_of(element: Any) -> Any:
    """The mapped entity that an element of a SELECT belongs to, or None."""
    return getattr(element, "_annotations", {}).get("parententity")


def empty_result(columns: SimpleResultMetaData) -> Result[Any]:
    """A result with these columns and no row.

    A result of one column says so, as SQLAlchemy's own do: scalars() then needs no other metadata.
    """
    return IteratorResult(columns, iter(()), _source_supports_scalars=len(columns.keys) == 1)


def has_own_rendering(kind: type) -> bool:
    """Whether @compiles has replaced how this very class is rendered."""
    return "_compiler_dispatcher" in vars(kind)


def inherits_own_rendering(kind: type) -> bool:
    """The same of the class or of one of its bases."""
    return hasattr(kind, "_compiler_dispatcher")


# Writes ------------------------------------------------------------------------------


def values_of(statement: Any) -> dict[Any, Any]:
    """The values given to values(), by column or name; 2.0 has ordered_values() apart."""
    ordered = getattr(statement, "_ordered_values", None)
    return dict(statement._values or {}) | dict(ordered or ())


def has_rows(statement: Any) -> bool:
    """Whether values() has given a list of rows."""
    return bool(statement._multi_values)


def rows_of(statement: Any) -> Iterator[Any]:
    """The rows of an INSERT of several in one VALUES."""
    return (row for rows in statement._multi_values for row in rows)


def conflict_clause_of(statement: Any) -> Any:
    """ON CONFLICT or ON DUPLICATE KEY UPDATE of an INSERT, or None."""
    return statement._post_values_clause


def prefixes_of(statement: Any) -> list[str]:
    """The words that prefix_with() has put behind the first word, in upper case."""
    return " ".join(str(prefix) for prefix, _ in statement._prefixes).upper().split()


def has_returning(statement: Any) -> bool:
    """Whether a write returns columns already."""
    return bool(statement._returning)


def is_column_value(bind: Any) -> bool:
    """Whether SQLAlchemy made this bind for the value of a column."""
    return bool(bind._is_crud)


def bind_processors_of(compiled: Any) -> Mapping[str, Any]:
    """By name of the bind, the function that converts a value for the driver."""
    processors: Mapping[str, Any] = compiled._bind_processors
    return processors


# Types -------------------------------------------------------------------------------


def are_sent_alike(one: Any, other: Any) -> bool:
    """Whether values of two types are certainly sent alike.

    Cache keys say nothing of variants, nor of types that must not be cached, which all have one.
    """
    return one is other or (
        not one._variant_mapping
        and not other._variant_mapping
        and one._static_cache_key is not NO_CACHE
        and one._static_cache_key == other._static_cache_key
    )


def has_bind_expression(type_: Any) -> bool:
    """Whether the type puts an SQL expression around each value that is sent."""
    return bool(getattr(type_, "_has_bind_expression", False))


def has_column_expression(type_: Any) -> bool:
    """Whether the type puts an SQL expression in place of the column that is read."""
    return bool(getattr(type_, "_has_column_expression", False))


def affinity_of(type_: Any) -> type | None:
    """The basic class of a type."""
    kind: type | None = type_._type_affinity
    return kind


def dialect_type(type_: Any, dialect: Any) -> Any:
    """The type that the dialect uses for this one, without a decorator."""
    return type_._unwrapped_dialect_impl(dialect)


def result_processor_of(type_: Any, dialect: Any) -> Any:
    """The function that converts what the driver has read into a value, or None."""
    return type_._cached_result_processor(dialect, None)


# Engines and pools -------------------------------------------------------------------


def has_events(target: Any) -> bool:
    """Whether an engine, connection or dialect has, or has had, a listener."""
    return bool(target._has_events)


def isolation_level_on_connect(dialect: Any) -> str | None:
    """The level that create_engine(isolation_level=) has asked for."""
    level: str | None = getattr(dialect, "_on_connect_isolation_level", None)
    return level


def commits_on_return(pool: Pool) -> bool:
    """Whether the pool commits what a connection leaves open when it comes back."""
    return pool._reset_on_return is ResetStyle.reset_commit


def connects_by_dialect(pool: Pool) -> bool:
    """Whether the pool makes connections as create_engine does, not by a function of the caller."""
    return getattr(pool._creator, "__module__", "") == create.__name__


def is_exhausted(pool: QueuePool) -> bool:
    """Whether the next connection of the pool would have to be waited for."""
    if pool.checkedin():
        return False
    most = pool._max_overflow
    return 0 <= most <= pool.overflow()


def has_opened(pool: SingletonThreadPool) -> bool:
    """Whether the pool has a connection of any thread."""
    return bool(pool._all_conns)


# Listeners ---------------------------------------------------------------------------


def shared_listeners(target: Any, event: str) -> Any:
    """The collection that all instances of a class share until one has listeners of its own.

    Returns None if `target` has its own. The functions are in `functions_of`.
    """
    collection = getattr(target.dispatch, event)
    return collection if type(collection) is _EmptyListener else None


def is_only_listener(
    session: Any, listener: Any, shared: Any, silent: Any, also_silent: Any
) -> bool:
    """Whether one event has this listener only and two have none (all from shared_listeners).

    A session gets its own `dispatch` at the first use; making one would take a microsecond.
    """
    own = session.__dict__.get("dispatch")
    for each in () if own is None else (shared, silent, also_silent):
        if getattr(own, each.name) is not each:
            return False
    if silent.parent_listeners or also_silent.parent_listeners:
        return False
    try:
        (only,) = shared.parent_listeners
    except (ValueError, RuntimeError):  # none, several, or another thread is changing them
        return False
    return only is listener


def functions_of(shared: Any) -> deque[Any]:
    """The functions that listen to a class: a live collection."""
    functions: deque[Any] = shared.parent_listeners
    return functions


def class_functions(target: type, event: str) -> deque[Any]:
    """The functions that listen to a class, by the class."""
    level = getattr(target.dispatch, event)  # type: ignore[attr-defined]
    level.update_subclass(target)
    functions: deque[Any] = level._clslevel[target]
    return functions


def replace_class_functions(target: type, event: str, functions: deque[Any]) -> None:
    """Makes a class hear an event by another collection, its instances included."""
    dispatch: Any = target.dispatch  # type: ignore[attr-defined]
    getattr(dispatch, event)._clslevel[target] = functions
    # All instances have this one until they get listeners of their own.
    shared = dispatch._empty_listener_reg.get(target, {}).get(event)
    if shared is not None:
        shared.parent_listeners = functions
