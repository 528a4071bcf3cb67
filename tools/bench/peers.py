"""The filters a Python user could pick instead, behind one interface.

Every peer is used the fastest way its public interface has: bulk calls where it has them, methods
of one type where it has them, a list comprehension otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bloomstore
from bloomstore import Fixed
from tools.bench.measure import OURS

Many = Callable[[list[Any]], object]
_numbers = itertools.count()


@dataclass
class Entry:
    """One filter of one contestant."""

    name: str
    each_in: Many
    each_add: Many
    add_many: Many
    find_many: Many
    bits: int
    add_array: Callable[[Any], object] | None = None
    find_array: Callable[[Any], object] | None = None
    drop: Callable[[], object] = field(default=lambda: None)

    def __post_init__(self) -> None:
        # Who cannot take an array gets its elements as Python ints, the fastest way to them.
        if self.add_array is None:
            self.add_array = lambda array: self.add_many(array.tolist())
        if self.find_array is None:
            self.find_array = lambda array: self.find_many(array.tolist())


Maker = Callable[[int, float, str, Path], Entry]


def loop_in(bloom: Any) -> Many:
    """`key in bloom`, one after the other."""

    def run(keys: list[Any]) -> None:
        for key in keys:
            key in bloom  # noqa: B015

    return run


def loop_call(method: Callable[[Any], object]) -> Many:
    """method(key), one after the other."""

    def run(keys: list[Any]) -> None:
        for key in keys:
            method(key)

    return run


def list_in(bloom: Any) -> Many:
    """A list of answers; a comprehension is faster than map(bloom.__contains__, keys)."""
    return lambda keys: [key in bloom for key in keys]


def make_ours(store: bloomstore.Store) -> Maker:
    """Filters of durability `process`: like the peers, they do not sync."""

    def make(capacity: int, error: float, kind: str, folder: Path) -> Entry:
        name = f"bench {next(_numbers)}"
        spec = Fixed(capacity=capacity, target_error=error)
        bloom = store.create(name, spec, durability="process")
        return Entry(
            OURS, loop_in(bloom), loop_call(bloom.add), bloom.add_many, bloom.may_contain_many,
            bloom.stats().bits, bloom.add_many, bloom.may_contain_many,
            lambda: store.drop(name),
        )  # fmt: skip

    return make


def _abloom(capacity: int, error: float, kind: str, folder: Path) -> Entry:
    import abloom

    return _of_abloom("abloom", abloom.BloomFilter(capacity, error))


def _abloom_serializable(capacity: int, error: float, kind: str, folder: Path) -> Entry:
    import abloom

    bloom = abloom.BloomFilter(capacity, error, serializable=True)
    return _of_abloom("abloom (serializable)", bloom)


def _of_abloom(name: str, bloom: Any) -> Entry:
    return Entry(
        name, loop_in(bloom), loop_call(bloom.add), bloom.update, list_in(bloom), bloom.bit_count
    )


def _rbloom(capacity: int, error: float, kind: str, folder: Path) -> Entry:
    import rbloom

    bloom = rbloom.Bloom(capacity, error)
    return Entry(
        "rbloom", loop_in(bloom), loop_call(bloom.add), bloom.update, list_in(bloom),
        bloom.size_in_bits,
    )  # fmt: skip


def _pybloomfilter(capacity: int, error: float, kind: str, folder: Path) -> Entry:
    import pybloomfilter

    path = folder / f"peer{next(_numbers)}.bloom"
    bloom = pybloomfilter.BloomFilter(capacity, error, str(path))

    def drop() -> None:
        bloom.close()
        path.unlink()

    return Entry(
        "pybloomfiltermmap3", loop_in(bloom), loop_call(bloom.add), bloom.update, list_in(bloom),
        bloom.num_bits, drop=drop,
    )  # fmt: skip


def _fastbloom(capacity: int, error: float, kind: str, folder: Path) -> Entry:
    import fastbloom_rs

    bloom = fastbloom_rs.BloomFilter(capacity, error)
    ints = kind == "int"
    find = bloom.contains_int_batch if ints else bloom.contains_str_batch
    return Entry(
        "fastbloom-rs",
        loop_call(bloom.contains_int if ints else bloom.contains_str),
        loop_call(bloom.add_int if ints else bloom.add_str),
        bloom.add_int_batch if ints else bloom.add_str_batch,
        lambda keys: find(keys, check_type=False),
        bloom.config().size(),
    )


PEERS: dict[str, tuple[str, Maker]] = {
    "abloom": ("abloom", _abloom),
    "abloom (serializable)": ("abloom", _abloom_serializable),
    "rbloom": ("rbloom", _rbloom),
    "pybloomfiltermmap3": ("pybloomfilter", _pybloomfilter),
    "fastbloom-rs": ("fastbloom_rs", _fastbloom),
}
# Peers whose filter means the same in another process. abloom and rbloom as they come use Python's
# hash(), which differs from process to process for str.
PERSISTING = frozenset({"abloom (serializable)", "pybloomfiltermmap3", "fastbloom-rs"})


def present_peers() -> tuple[dict[str, Maker], list[str]]:
    """The makers of installed peers, and what is missing."""
    makers: dict[str, Maker] = {}
    missing = []
    for name, (module, maker) in PEERS.items():
        try:
            __import__(module)
        except ImportError as error:
            missing.append(f"{name}: {error}")
            continue
        makers[name] = maker
    try:
        import pybloom_live  # noqa: F401
    except ImportError as error:
        missing.append(f"pybloom-live: {error}")
    return makers, missing
