"""SQLAlchemy's private names: each that is used exists here, and only one file uses them.

CI runs this with the lowest supported release of SQLAlchemy and with the newest one.
"""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.event.attr import _EmptyListener
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    ORMExecuteState,
    Session,
    mapped_column,
    sessionmaker,
)
from sqlalchemy.pool import QueuePool, SingletonThreadPool
from sqlalchemy.sql.compiler import SQLCompiler

import bloomstore
from bloomstore.sql import sqlalchemy_private as private

ROOT = Path(bloomstore.__file__).parent
ONLY = ROOT / "sql" / "sqlalchemy_private.py"
# Underscored names of objects that are not SQLAlchemy's, and of SQLAlchemy's documented Row API.
OTHERS = {"_mapping", "_protocol", "_replace"}


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "private_users"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]


users = User.__table__
select, insert, update = sa.select(User), sa.insert(User), sa.update(User)


@pytest.fixture
def engine() -> Any:
    engine = sa.create_engine("sqlite://")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def compiled() -> SQLCompiler:
    made = sa.insert(cast("Any", users)).values(id=1).compile(dialect=sqlite.dialect())
    assert isinstance(made, SQLCompiler)
    return made


# One line for each name that sqlalchemy_private.py reads: how to come by an object that has it.
OBJECTS: dict[str, Callable[[], Any]] = {
    "_new": Session,
    "_deleted": Session,
    "_flushing": Session,
    "_transaction": Session,
    "_close_state": Session,
    "_execute_internal": Session,
    "_modified": lambda: Session().identity_map,
    "_dict": lambda: Session().identity_map,
    "_connections": lambda: Session().begin(),
    "_parent": lambda: Session().begin(),
    "_remaining_events": lambda: ORMExecuteState,
    "_identity_class": lambda: sa.inspect(User),
    "_dispose_called": lambda: sa.inspect(User),
    "_connection_record": lambda: sa.create_engine("sqlite://").raw_connection(),
    "_execution_options": lambda: sa.create_engine("sqlite://").connect(),
    "_propagate_attrs": lambda: select,
    "_with_options": lambda: select,
    "_generate_cache_key": lambda: select,
    "_raw_columns": lambda: select,
    "_where_criteria": lambda: select,
    "_generate": lambda: select,
    "_for_update_arg": lambda: select,
    "_having_criteria": lambda: select,
    "_group_by_clauses": lambda: select,
    "_prefixes": lambda: select,
    "_suffixes": lambda: select,
    "_hints": lambda: select,
    "_statement_hints": lambda: select,
    "_independent_ctes": lambda: select,
    "_from_obj": lambda: select,
    "_clone": lambda: users.c.id == 1,
    "_deannotate": lambda: users.c.id,
    "_annotations": lambda: select._raw_columns[0],
    "_values": lambda: insert,
    "_multi_values": lambda: insert,
    "_post_values_clause": lambda: insert,
    "_returning": lambda: insert,
    "_is_crud": lambda: next(iter(compiled().binds.values())),
    "_bind_processors": compiled,
    "_variant_mapping": sa.Integer,
    "_static_cache_key": sa.Integer,
    "_has_bind_expression": sa.Integer,
    "_has_column_expression": sa.Integer,
    "_type_affinity": sa.Integer,
    "_unwrapped_dialect_impl": sa.Integer,
    "_cached_result_processor": sa.Integer,
    "_has_events": lambda: sa.create_engine("sqlite://"),
    "_on_connect_isolation_level": sqlite.dialect,
    "_reset_on_return": lambda: QueuePool(cast("Any", lambda: sqlite3.connect(":memory:"))),
    "_creator": lambda: sa.create_engine("sqlite://").pool,
    "_max_overflow": lambda: QueuePool(cast("Any", lambda: sqlite3.connect(":memory:"))),
    "_all_conns": lambda: SingletonThreadPool(cast("Any", lambda: sqlite3.connect(":memory:"))),
    "_clslevel": lambda: Session.dispatch.after_begin,  # type: ignore[attr-defined]
    "_empty_listener_reg": lambda: Session.dispatch,
}
# Names that only one of the supported releases has, or only some objects; tested below by use.
BY_USE = {
    "_Session__binds",
    "_ordered_values",
    "_compiler_dispatcher",
    "_EmptyListener",
    "_all_registries",
    "_params",
    "_label_style",
    "_source_supports_scalars",
    "_parent_execute_state",
    "_add_event",
    "_scalar_result",
}


def names_in(path: Path) -> set[str]:
    """Underscored names that a file takes from other objects: attributes, keywords and words."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                names.add(node.attr)
        elif isinstance(node, ast.keyword):
            names.add(node.arg or "")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sqlalchemy"):
            names.update(alias.name for alias in node.names)
            names.update((node.module or "").split("."))
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def words_in(path: Path) -> set[str]:
    """Names in literals, as getattr takes them."""
    return {
        word
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in node.value.split()
        if word in OBJECTS or word in BY_USE
    }


def own_names(path: Path) -> set[str]:
    """Underscored attributes that the classes and functions of this package define."""
    return {
        str(getattr(node, "name", None) or getattr(node, "attr", ""))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        or (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        )
    }


@pytest.mark.parametrize("name", OBJECTS)
def test_the_installed_sqlalchemy_has(name: str) -> None:
    assert hasattr(OBJECTS[name](), name)


def test_every_private_name_is_tested_here() -> None:
    used = names_in(ONLY) | words_in(ONLY)
    assert used - BY_USE == OBJECTS.keys()


def test_no_other_file_uses_a_private_name() -> None:
    paths = [path for path in ROOT.rglob("*.py") if path != ONLY]
    ours = {name for path in paths for name in own_names(path)}
    wrong = {
        str(path.relative_to(ROOT)): names
        for path in paths
        if path.is_relative_to(ROOT / "sql")
        and (
            names := ((names_in(path) - ours) | (names_in(path) & OBJECTS.keys()) | words_in(path))
            - OTHERS
        )
    }
    assert wrong == {}


def test_classes_of_a_table_are_found() -> None:
    assert private.mappers_of(users) == [sa.inspect(User)]


def test_functions_that_connect_are_noticed() -> None:
    assert private.connects_by_dialect(sa.create_engine("sqlite://").pool)
    creator = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(":memory:"))
    assert not private.connects_by_dialect(creator.pool)


def test_engines_by_class_are_found() -> None:
    engine = sa.create_engine("sqlite://")
    assert not private.binds_of(Session(engine))
    assert private.binds_of(Session(binds={User: engine}))


def test_values_of_updates_are_found_in_any_order() -> None:
    assert list(private.values_of(update.values(email="a"))) == [users.c.email]
    ordered = update.ordered_values((users.c.email, "a"), (users.c.id, 1))
    assert len(private.values_of(ordered)) == 2


def test_simple_selects_are_recognized() -> None:
    simple = sa.select(User).where(User.id == 1)
    assert private.simple_parts(simple) is not None
    assert private.simple_parts(simple.limit(1)) is None


def test_values_of_params_are_in_the_cache_key_or_noticed() -> None:
    statement = sa.select(User).where(User.id == sa.bindparam("key")).params(key=5)
    binds = private.cache_key_of(statement).bindparams
    assert private.has_own_values(statement) or [bind.value for bind in binds] == [5]


def test_own_renderings_are_recognized() -> None:
    class Odd(sa.Insert):
        inherit_cache = False

    assert not private.inherits_own_rendering(sa.Insert)
    compiles(Odd)(lambda element, compiler, **named: "SELECT 1")
    assert private.has_own_rendering(Odd)
    assert private.inherits_own_rendering(Odd)


def test_empty_results_have_columns(engine: sa.Engine) -> None:
    columns = sa.engine.result.SimpleResultMetaData(["User"])
    assert private.empty_result(columns).scalars().all() == []


def test_executions_pass_one_method(engine: sa.Engine) -> None:
    passed: list[Any] = []

    class Counting(private.OneExecution):
        def before_execution(self, statement: Any, parameters: Any, *rest: Any) -> Any:
            passed.append(statement)
            return statement, parameters

    statement = select.options(sa.orm.raiseload("*"))
    with Counting(engine) as session:
        session.execute(statement)
        session.scalars(statement)
        session.scalar(statement)
        session.execute(select)
    assert passed == [statement] * 3


def test_listeners_of_a_class_are_shared_by_its_sessions(engine: sa.Engine) -> None:
    factory = sessionmaker(engine)
    session = factory()
    shared = private.shared_listeners(session, "after_begin")
    assert type(shared) is _EmptyListener
    assert not private.functions_of(shared)
    sa.event.listen(factory, "after_begin", print)
    assert list(private.functions_of(shared)) == [print]
    silent = private.shared_listeners(session, "do_orm_execute")
    others = private.shared_listeners(session, "after_transaction_create")
    other = factory()
    assert private.is_only_listener(other, print, shared, silent, others)
    assert not private.is_only_listener(other, repr, shared, silent, others)
    sa.event.listen(factory, "do_orm_execute", repr)
    assert not private.is_only_listener(other, print, shared, silent, others)
    sa.event.remove(factory, "do_orm_execute", repr)
    assert private.is_only_listener(other, print, shared, silent, others)
    sa.event.listen(other, "after_begin", repr)
    assert not private.is_only_listener(other, print, shared, silent, others)
    assert private.shared_listeners(other, "after_begin") is None
