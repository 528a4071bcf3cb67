"""Whatever call LMDB refuses, and whenever: users see errors of bloomstore.errors only."""

from __future__ import annotations

import collections.abc as abc
import resource
from pathlib import Path
from typing import Any

import lmdb
import pytest

import bloomstore
from bloomstore import Dynamic, Fixed
from bloomstore.catalog.environment import LEAST_MAP_BYTES
from bloomstore.errors import BloomStoreError, StoreFailed
from tests.support.soundness import assert_sound

SPEC = Dynamic(capacity=100, target_error=0.01)
CALLS = ["begin", "info", "stat", "reader_check", "readers", "copy"]


class Refusing:
    """An LMDB environment in which one call fails, from the n-th time on."""

    def __init__(self, environment: Any, call: str, first: int) -> None:
        self._environment = environment
        self._call = call
        self._left = first

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            self._left -= 1
            if self._left < 0:
                return self._refuse
        return getattr(self._environment, name)

    def _refuse(self, *_: object, **__: object) -> None:
        raise lmdb.ReadersFullError(f"mdb_{self._call}", -30790)


def rebuild(store: bloomstore.Store) -> None:
    with store.rebuild("seen") as coming:
        coming.add_many(range(250))
        coming.switch()


def batch(store: bloomstore.Store) -> None:
    with store.batch():
        store["seen"].add_many(range(5000, 5010))


WORK: dict[str, abc.Callable[[bloomstore.Store], object]] = {
    "add": lambda store: store["seen"].add("x"),
    "grow": lambda store: store["seen"].add_many(range(1000, 1400)),
    "find": lambda store: store["seen"].may_contain_many(range(10)),
    "batch": batch,
    "create": lambda store: store.create("other", SPEC),
    "ensure": lambda store: store.ensure("another", SPEC),
    "drop": lambda store: store.drop("spare"),
    "note": lambda store: store.notes.__setitem__("a", b"x"),
    "checkpoint": lambda store: store.checkpoint(),
    "check": lambda store: list(store.check()),
    "repair": lambda store: list(store.repair()),
    "stats": lambda store: store["seen"].stats(),
    "fence": lambda store: store["seen"].fence("why"),
    "rebuild": rebuild,
    "backup": lambda store: store.backup(store.path.with_name("saved")),
    "incarnation": lambda store: store.incarnation,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
def test_a_refused_call_is_an_error_of_ours(
    path: Path, call: str, work: abc.Callable[[bloomstore.Store], object]
) -> None:
    for first in range(4):
        with bloomstore.open(path) as store:
            seen = store.ensure("seen", SPEC)
            seen.add_many(range(250))
            store.ensure("spare", SPEC)
            catalog: Any = store._core.catalog
            real = catalog._environment
            catalog._environment = catalog._room._environment = Refusing(real, call, first)
            catalog._room._look_at = 0  # as if the file had grown: it is looked at closely
            try:
                work(store)
            except BloomStoreError:
                pass
            finally:
                if isinstance(catalog._environment, Refusing):  # else it was opened anew
                    catalog._environment = catalog._room._environment = real
            assert seen.may_contain_many(range(250)).all()
            seen.add(("after", first))
    assert_sound(path)


def test_a_full_map_and_a_full_table_of_readers_at_once(path: Path) -> None:
    with bloomstore.open(path, map_size=LEAST_MAP_BYTES) as store:
        catalog: Any = store._core.catalog
        catalog._environment = Refusing(catalog._environment, "begin", 0)
        catalog._room._environment = catalog._environment
        catalog._room._look_at = 0
        with pytest.raises(StoreFailed, match="mdb_begin"):
            catalog.require_room()
        catalog._environment = catalog._environment._environment
        catalog._room._environment = catalog._environment


def test_a_backup_that_is_too_large_for_the_limit_on_files_raises(path: Path) -> None:
    with bloomstore.open(path) as store:
        store.create("seen", Fixed(capacity=100, target_error=0.01)).add_many(range(50))
        store.checkpoint()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, before[1]))
        try:
            with pytest.raises(StoreFailed, match="cannot be copied"):
                store.backup(path.with_name("saved"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        store.backup(path.with_name("saved again"))
    assert_sound(path.with_name("saved again"))
    assert_sound(path)
