"""Filling a filter anew from its source, and asking a source whether the filter has its keys.

    from bloomstore.rebuild import ParquetSource, rebuild
    rebuild(store, "seen", ParquetSource(Path("seen.parquet"), ["key"]))

source.py    what a source is
text_source.py      lines of a file; keys of CSV and of columns are in files.py
plan.py      how large the new filter becomes
state.py     how far a rebuild has come
rebuild_lock.py     one rebuild of a filter at a time
order.py       the order of a rebuild
copied_filter.py    a filter of another store instead of keys
verify.py    what the filter misses of its source, and its error as it is
advice.py    when a rebuild pays

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
