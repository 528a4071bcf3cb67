"""Many filters in one store, many stages in one filter: no step looks at all of them."""

from __future__ import annotations

import collections.abc as abc
import resource
import time
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Dynamic, Fixed
from bloomstore.catalog import frames
from bloomstore.catalog.rows import Durability
from tests.support.soundness import assert_sound

SPEC = Fixed(capacity=100, target_error=0.01)


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def few_descriptors() -> abc.Iterator[int]:
    """Fewer descriptors than there will be filters."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _descriptors() + 24
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Reads:
    """Counts the rows of the catalog that a block reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        real = frames.unframe

        def unframe(table: str, key: bytes, raw: bytes) -> bytes:
            self.rows += 1
            return real(table, key, raw)

        monkeypatch.setattr(frames, "unframe", unframe)

    def of(self, call: abc.Callable[[], object]) -> int:
        before = self.rows
        call()
        return self.rows - before


@pytest.mark.parametrize("durability", ["commit", "process"])
def test_what_a_step_reads_does_not_depend_on_the_number_of_filters(
    path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    store = bloomstore.open(path, durability=durability)
    reads = Reads(monkeypatch)
    key = iter(range(1_000_000))
    other = store.create("other", SPEC)

    def costs(number: int) -> dict[str, int]:
        name = f"filter {number}"
        made = reads.of(lambda: store.create(name, SPEC).add(next(key)))
        seen = store[name]

        def batch() -> None:
            with store.batch():
                seen.add(next(key))
                other.add(next(key))

        return {
            "create and add": made,
            "in": reads.of(lambda: name in store),
            "batch": reads.of(batch),
            "add": reads.of(lambda: seen.add(next(key))),
            "stats": reads.of(seen.stats),
            "ensure": reads.of(lambda: store.ensure(name, SPEC)),
            "drop": reads.of(lambda: store.drop(name)),
        }

    few = [costs(number) for number in range(5)][-1]
    for number in range(5, 60):
        store.create(f"filter {number}", SPEC).add(next(key))
    many = costs(60)
    assert {step: read for step, read in many.items() if read > few[step] + 3} == {}
    store.close()
    assert_sound(path)


def test_a_checkpoint_reads_the_stages_of_what_has_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(path) as store:
        for number in range(40):
            durability: Durability = "process" if number % 2 else "commit"
            store.create(f"filter {number}", SPEC, durability=durability).add(1)
        store.checkpoint()
        reads = Reads(monkeypatch)
        assert reads.of(store.checkpoint) <= 5
        for name in ("filter 7", "filter 8"):
            store[name].add(2)
        assert reads.of(store.checkpoint) <= 60
    assert_sound(path)


@pytest.mark.parametrize("durability", ["commit", "process"])
def test_filters_need_no_descriptors(
    path: Path, few_descriptors: int, durability: Durability
) -> None:
    with bloomstore.open(path, durability=durability) as store:
        handles = [store.create(f"filter {number}", SPEC) for number in range(60)]
        for number, handle in enumerate(handles):
            assert handle.add(number)
        with store.batch():
            for handle in handles:
                handle.add("all")
        assert _descriptors() < few_descriptors - 8
        store.checkpoint()
        assert all(handle.add("more") for handle in handles)
        assert all(number in handle for number, handle in enumerate(handles))
    with bloomstore.open(path) as store:
        handles = [store[name] for name in store]
        assert all("all" in handle and handle.state.is_sound for handle in handles)
        assert sum("nobody" in handle for handle in handles) < 15
    assert_sound(path)


@pytest.mark.parametrize("durability", ["commit", "process"])
def test_stages_need_no_descriptors(
    path: Path, few_descriptors: int, durability: Durability
) -> None:
    with bloomstore.open(path, durability=durability) as store:
        seen = store.create("seen", Dynamic(capacity=20, target_error=0.001))
        seen.add_many(range(1200))
        assert len(seen.stats().stages) > 50
        assert seen.may_contain_many(range(1200)).all()
        store.backup(path.with_name("saved"))
    for found in (path, path.with_name("saved")):
        with bloomstore.open(found) as store:
            assert store["seen"].may_contain_many(range(1200)).all()
            assert store["seen"].state.is_sound
            assert store["seen"].add("alice")
        assert_sound(found)


def test_the_journal_rows_of_a_segment_are_found_whatever_happens_to_others(path: Path) -> None:
    with bloomstore.open(path) as store:
        first, second = store.create("first", SPEC), store.create("second", SPEC)
        catalog = store._core.catalog

        def keys(number: int) -> tuple[list[int], list[int]]:
            """What the index finds, and what the journal has."""
            with catalog.read() as view:
                found = [row.sequence for row in view.journal_of(number)]
                return found, [row.sequence for row in view.journal() if row.number == number]

        numbers = [view._current().live.newest.row.number for view in (first, second)]
        for step in range(12):
            (first if step % 3 else second).add(step)
            if step == 7:
                store.checkpoint()
            if step == 9:
                store.drop("first")
                first = store.create("first", SPEC)
                numbers.append(first._current().live.newest.row.number)
            for number in numbers:
                found, expected = keys(number)
                assert found == expected
        with catalog.read() as old:
            before = [row.sequence for row in old.journal()]
            second.add("later")
            keys(numbers[1])  # the index is newer than the view now
            for number in numbers:
                expected = [row.sequence for row in old.journal() if row.number == number]
                assert [row.sequence for row in old.journal_of(number)] == expected
            assert [row.sequence for row in old.journal()] == before


@pytest.mark.slow
def test_ten_thousand_filters_in_one_process(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with bloomstore.open(path) as store:
            for number in range(10_000):
                if number in (0, 100, 9_900, 10_000 - 1):
                    print(f"{number} filters: {time.process_time():.2f} s")
                store.create(f"f{number}", SPEC)
            for number in range(10_000):
                store[f"f{number}"].add(number)
            print(f"added to: {time.process_time():.2f} s")
            with store.batch():
                store["f1"].add("both")
                store["f2"].add("both")
        print(f"closed: {time.process_time():.2f} s")
        with bloomstore.open(path) as store:
            assert all(number in store[f"f{number}"] for number in range(10_000))
            assert "both" in store["f1"]
        print(f"asked: {time.process_time():.2f} s")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
