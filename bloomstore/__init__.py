"""Bloom filters on disk that can be trusted like the database they guard.

    import bloomstore
    from bloomstore import Scalable

    with bloomstore.open("filters/") as store:
        seen = store.ensure("seen", Scalable(target_error=1e-3))
        seen.add("alice")
        "alice" in seen      # True: maybe
        "bob" in seen        # False: certainly not

A "no" is never wrong: not after a crash, not with several processes. Doubt answers "maybe".

The rooms of the package; each imports only rooms that stand above it (tests/test_layers.py):

    errors.py     every error that a caller may catch
    crash.py      named points at which the tests kill a process
    held.py       things that a thread holds, and their release by an interrupt
    theory/       the formulas: bits, hashes, fill, error
    hashing/      encoded keys to fingerprints, fingerprints to positions
    layout/       what the bits of a vector mean: plain, sliced, blocked
    families/     how a filter grows: Fixed, Scalable, Dynamic, Flexible
    kernels/      the loops over bits, compiled and in numpy
    keys/         which values can be a key, and their fingerprints
    segment/      the file of one stage
    catalog/      which filters and stages exist, and the journal, in LMDB
    filters/      a chain of stages as one object that can be asked
    store/        stores and filters: adding, asking, opening, repairing
    rebuild/      filling a filter again from its source
    sql/          guards in front of database tables, through SQLAlchemy
    cli/          the command line
    __main__.py   `python -m bloomstore`
"""

from bloomstore.catalog.rows import Durability
from bloomstore.errors import BloomStoreError
from bloomstore.families.contract import FilterSpec
from bloomstore.families.dynamic import Dynamic
from bloomstore.families.expansion import ByRate, LastValue, LinearTrend, MovingAverage, Sequence
from bloomstore.families.fixed import Fixed
from bloomstore.families.flexible import Flexible
from bloomstore.families.growth_plan import GrowthStep, plan_growth
from bloomstore.families.scalable import Scalable
from bloomstore.filters.estimate import Estimate
from bloomstore.store.filter import Filter
from bloomstore.store.open import open_store
from bloomstore.store.stats import FilterStats, StageStats
from bloomstore.store.store import Store

__version__ = "0.1.0"

open = open_store  # noqa: A001  bloomstore.open

# Without `open`: a star import must not replace the builtin.
__all__ = [
    "BloomStoreError",
    "ByRate",
    "Durability",
    "Dynamic",
    "Estimate",
    "Filter",
    "FilterSpec",
    "FilterStats",
    "Fixed",
    "Flexible",
    "GrowthStep",
    "LastValue",
    "LinearTrend",
    "MovingAverage",
    "Scalable",
    "Sequence",
    "StageStats",
    "Store",
    "plan_growth",
]
