"""The options that name a source of keys, and the source they make.

--from keys.txt                                  lines; --type, --null
--from keys.csv --column email                   also .parquet, .arrow, .feather
--from URL --table users --column email          two columns make keys of two parts
--from URL --select "SELECT ..."
--from URL                                       the guard of the filter's name; --models
--from STORE --filter seen                       another store's filter, for a rebuild only
--from URL ... --parallel 4                      ranges of an integer column, a connection for each
"""

from __future__ import annotations

import collections.abc as abc
import importlib
import sys
from argparse import ArgumentParser, Namespace
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bloomstore import Store
from bloomstore.cli.support.arguments import UsageError, whole_number
from bloomstore.keys.lines import PARSERS
from bloomstore.rebuild import ArrowSource, CsvSource, ParquetSource, Source, TextSource

_COLUMNS: dict[str, Any] = {
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
    ".arrow": ArrowSource,
    ".feather": ArrowSource,
    ".ipc": ArrowSource,
}


def add_source_options(parser: ArgumentParser, *, is_required: bool = True) -> None:
    """--from and the options that belong to it."""
    group = parser.add_argument_group("source of the keys")
    group.add_argument(
        "--from",
        dest="source",
        required=is_required,
        metavar="SOURCE",
        help="a file (.csv, .parquet, .arrow, .feather; any other has a key per line), or the URL"
        " of a database as SQLAlchemy writes it; a URL alone: the guard of the filter's name",
    )
    group.add_argument("--table", metavar="TABLE", help="of the database, or schema.table")
    group.add_argument(
        "--column",
        dest="columns",
        action="append",
        metavar="COLUMN",
        help="of the table or the file; repeated: keys of several parts",
    )
    group.add_argument("--select", metavar="SQL", help="rows of this query are the keys")
    group.add_argument(
        "--models",
        metavar="MODULE:NAME",
        help="where a guard is declared, as app.models:Base (a class or a MetaData)",
    )
    group.add_argument(
        "--parallel",
        type=whole_number,
        metavar="N",
        help="connections that read ranges of the table side by side: for a single column of"
        " integers with an index",
    )
    group.add_argument(
        "--type",
        dest="key_type",
        choices=tuple(PARSERS),
        default="str",
        help="what a key in a text or CSV file is: a UTF-8 text (default), a number, or hex bytes",
    )
    group.add_argument(
        "--null", action="store_true", help="keys in a text file end with NUL, not with a newline"
    )


@contextmanager
def source_from_options(args: Namespace, store: Store) -> abc.Iterator[Source]:
    """The source that was asked for. Raises UsageError or SourceError."""
    if "://" not in args.source:
        if Path(args.source).is_dir():
            raise UsageError(f"--from {args.source}: the keys of a store cannot be listed")
        yield _file(args)
        return
    from bloomstore.sql.build import table_source

    engine = table_source.connect(args.source)
    try:
        yield _database(args, store, engine)
    finally:
        engine.dispose()


def refuse_for_a_store(args: Namespace) -> None:
    """Refuses options about keys or sizes: a copy has those of the other store."""
    _refuse(args, "a store", "table", "columns", "select", "models", "parallel")
    _refuse(args, "a store", "capacity", "target_error")


def _file(args: Namespace) -> Source:
    _refuse(args, "a file", "table", "select", "models", "parallel")
    if args.source == "-":
        raise UsageError("--from -: a source is read more than once, standard input cannot be")
    path = Path(args.source)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return CsvSource(path, args.columns or (), args.key_type)
    if suffix in _COLUMNS:
        source: Source = _COLUMNS[suffix](path, args.columns or ())
        return source
    _refuse(args, "a text file", "columns")
    return TextSource(path, args.key_type, b"\0" if args.null else b"\n")


def _database(args: Namespace, store: Store, engine: Any) -> Source:
    from bloomstore.sql.build import guard_source, table_source

    if args.select is not None:
        _refuse(args, "--select", "table", "columns", "models", "parallel")
        return table_source.SelectSource(engine, args.select)
    parallel = 1 if args.parallel is None else args.parallel
    if args.table is not None:
        _refuse(args, "--table", "models")
        table = table_source.reflect(engine, args.table)
        return table_source.TableSource(engine, table, args.columns or (), parallel=parallel)
    _refuse(args, "a guard", "columns")
    return guard_source.guard_source(
        store, engine, args.name, _models(args.models), parallel=parallel
    )


def _models(dotted: str | None) -> Any:
    if dotted is None:
        return None
    module, _, name = dotted.partition(":")
    sys.path.insert(0, "")
    try:
        models = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--models {dotted}: {error}") from None
    finally:
        sys.path.remove("")
    return getattr(models, "metadata", models)


def _refuse(args: Namespace, source: str, *names: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            flag = "--column" if name == "columns" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} does not go together with {source}")
