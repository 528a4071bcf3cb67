"""Rebuilding a filter from its source, and verifying that the filter has the source's keys.

    from bloomstore.rebuild import ParquetSource, rebuild
    rebuild(store, "seen", ParquetSource(Path("seen.parquet"), ["key"]))

    source.py           Source, the interface that gives all keys again
    text_source.py      lines of a text file as a source
    files.py            CSV, Parquet and Arrow files as sources
    plan.py             the size of the new filter
    order.py            the one order of a rebuild's steps
    state.py            how far a rebuild has come
    rebuild_lock.py     one rebuild of a filter at a time
    read_ahead.py       batches read in threads while others are added
    foreign_keys.py     whether a source may belong to another filter
    copied_filter.py    a filter of another store instead of keys
    verify.py           keys of a source that a filter misses, and its error as measured
    advice.py           when a rebuild pays

Sources of databases and guards are in bloomstore.sql.
"""

from bloomstore.errors import Incomplete, RebuildError, SourceError
from bloomstore.rebuild.advice import Advice, advise
from bloomstore.rebuild.copied_filter import copy_filter
from bloomstore.rebuild.files import ArrowSource, CsvSource, ParquetSource
from bloomstore.rebuild.order import PATIENCE, Rebuilt, give_up, rebuild
from bloomstore.rebuild.plan import Plan, plan_rebuild
from bloomstore.rebuild.source import Batch, Source
from bloomstore.rebuild.state import State, read_state
from bloomstore.rebuild.text_source import TextSource

__all__ = [
    "PATIENCE",
    "Advice",
    "ArrowSource",
    "Batch",
    "CsvSource",
    "Incomplete",
    "ParquetSource",
    "Plan",
    "RebuildError",
    "Rebuilt",
    "Source",
    "SourceError",
    "State",
    "TextSource",
    "advise",
    "copy_filter",
    "give_up",
    "plan_rebuild",
    "read_state",
    "rebuild",
]
