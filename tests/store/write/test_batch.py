"""A batch belongs to its block: it takes what is added inside, and nothing else of its thread."""

from __future__ import annotations

import asyncio
import collections.abc as abc
import contextlib
import contextvars
import gc
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

import bloomstore
from bloomstore import Dynamic, Filter, Scalable, Store
from bloomstore.catalog.rows import Durability
from bloomstore.errors import FilterNotFound
from tests.support.soundness import assert_sound

SPEC = Scalable(target_error=0.001, initial_capacity=100)


@pytest.fixture(params=["commit", "process"])
def users(request: pytest.FixtureRequest, store: Store) -> Filter:
    """A filter that has a key already: a process filter keeps the writer lock by then."""
    durability: Durability = request.param
    made = store.create("users", SPEC, durability=durability)
    made.add("first")
    made.add("second")
    return made


def is_added(store: Store, users: Filter, key: str) -> bool:
    """Whether somebody else finds the key: another thread has no batch."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(key in users))
    thread.start()
    thread.join()
    return answers[0]


def suspended(store: Store, users: Filter, key: str) -> abc.Generator[None]:
    with store.batch():
        users.add(key)
        yield
        users.add(f"{key}, later")
        yield


def test_a_suspended_generator_takes_nothing_from_its_thread(store: Store, users: Filter) -> None:
    inside = suspended(store, users, "inside")
    next(inside)
    assert users.add("outside")
    assert is_added(store, users, "outside")
    assert users.add_many(["many", "more"]) == 2
    assert is_added(store, users, "more")
    assert "inside" not in users  # of another block, which may be discarded
    del inside
    assert users.may_contain_many(["outside", "many", "more"]).all()
    assert not users.may_contain_many(["inside", "inside, later"]).any()


def test_a_suspended_generator_does_not_forbid_changes(store: Store, users: Filter) -> None:
    inside = suspended(store, users, "inside")
    next(inside)
    store.checkpoint()
    users.unfence(users.fence("outside of the block"))
    store.create("other", SPEC)
    inside.close()


def test_a_generator_that_goes_on_adds_to_its_own_batch(store: Store, users: Filter) -> None:
    inside = suspended(store, users, "inside")
    next(inside)
    with store.batch():
        users.add("of the block")
        next(inside)
        assert "inside" not in users
        assert not is_added(store, users, "of the block")
    assert is_added(store, users, "of the block")
    assert not is_added(store, users, "inside, later")
    assert list(inside) == []
    assert users.may_contain_many(["inside", "inside, later", "of the block"]).all()
    assert not store._batches.open


def test_a_waiting_coroutine_takes_nothing_from_its_thread(store: Store, users: Filter) -> None:
    class Pause:
        def __await__(self) -> abc.Generator[None]:
            yield

    async def wait() -> None:
        with store.batch():
            users.add("inside")
            await Pause()

    waiting = wait()
    waiting.send(None)
    assert users.add("outside")
    assert is_added(store, users, "outside")
    waiting.close()
    assert "outside" in users
    assert "inside" not in users
    assert not store._batches.open


def test_what_an_event_loop_runs_inside_of_a_block_is_not_of_it(
    store: Store, users: Filter
) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(users.add, "of a callback")
        await asyncio.sleep(0)
        users.add("of a task")

    with contextlib.suppress(ZeroDivisionError), store.batch():
        users.add("inside")
        asyncio.run(main())
        raise ZeroDivisionError
    assert users.may_contain_many(["of a callback", "of a task"]).all()
    assert "inside" not in users


@contextlib.contextmanager
def by_generator(store: Store) -> abc.Iterator[None]:
    with store.batch():
        yield


@contextlib.contextmanager
def by_two_generators(store: Store) -> abc.Iterator[None]:
    with by_generator(store):
        yield


@contextlib.contextmanager
def by_stack(store: Store) -> abc.Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.batch())
        yield


class ByClass:
    """A context manager of the application's own."""

    def __init__(self, store: Store) -> None:
        self._batch = store.batch()

    def __enter__(self) -> None:
        self._batch.__enter__()

    def __exit__(self, *error: object) -> None:
        self._batch.__exit__(*cast("Any", error))


@pytest.mark.parametrize("wrapped", [by_generator, by_two_generators, by_stack, ByClass])
def test_context_managers_made_of_a_batch_are_batches(
    store: Store,
    users: Filter,
    wrapped: abc.Callable[[Store], contextlib.AbstractContextManager[None]],
) -> None:
    with wrapped(store):
        assert users.add("collected")
        assert "collected" in users
        assert not is_added(store, users, "collected")
    assert is_added(store, users, "collected")
    with contextlib.suppress(ZeroDivisionError), wrapped(store):
        assert users.add("discarded")
        raise ZeroDivisionError
    assert "discarded" not in users
    assert not store._batches.open


def test_async_context_managers_made_of_a_batch_are_batches(store: Store, users: Filter) -> None:
    @contextlib.asynccontextmanager
    async def wrapped() -> abc.AsyncIterator[None]:
        with store.batch():
            await asyncio.sleep(0)
            yield

    async def main() -> None:
        async with wrapped():
            assert users.add("collected")
            await asyncio.sleep(0)
            assert not is_added(store, users, "collected")
        assert is_added(store, users, "collected")

    asyncio.run(main())
    assert not store._batches.open


def end_in_another_context(inside: abc.Generator[None]) -> None:
    contextvars.copy_context().run(inside.close)


def end_in_another_thread(inside: abc.Generator[None]) -> None:
    thread = threading.Thread(target=inside.close)
    thread.start()
    thread.join()


def end_by_the_collector(inside: abc.Generator[None]) -> None:
    circle: list[Any] = [inside]
    circle.append(circle)
    del inside, circle


@pytest.mark.parametrize(
    "end", [end_in_another_context, end_in_another_thread, end_by_the_collector]
)
def test_a_batch_may_end_anywhere(
    store: Store, users: Filter, end: abc.Callable[[abc.Generator[None]], None]
) -> None:
    other = [suspended(store, users, "other")]
    next(other[0])

    def begin() -> list[abc.Generator[None]]:
        inside = suspended(store, users, "inside")
        contextvars.copy_context().run(next, inside)
        return [inside]

    end(begin().pop())
    gc.collect()
    assert len(store._batches.open) == 1
    assert users.add("outside")
    assert is_added(store, users, "outside")
    other.pop().close()
    assert not store._batches.open
    assert "outside" in users
    assert not users.may_contain_many(["inside", "other"]).any()


def test_a_block_that_is_entered_and_forgotten_is_no_batch(store: Store, users: Filter) -> None:
    store.batch().__enter__()
    assert users.add("outside")
    assert is_added(store, users, "outside")
    assert not store._batches.open


def test_apart_from_its_batch_an_add_is_durable_at_once(store: Store, users: Filter) -> None:
    with contextlib.suppress(ZeroDivisionError), store.batch():
        users.add("discarded")
        with store.apart():
            users.add("apart")
            assert is_added(store, users, "apart")
            with store.batch():
                users.add("collected")
                assert not is_added(store, users, "collected")
        users.add("discarded, too")
        raise ZeroDivisionError
    assert users.may_contain_many(["apart", "collected"]).all()
    assert not users.may_contain_many(["discarded", "discarded, too"]).any()


def test_lookups_are_quick_again_after_a_batch(store: Store, users: Filter) -> None:
    _ = "first" in users
    was_quick = users.is_quick
    with store.batch():
        users.add("collected")
        assert not users.is_quick
    assert "collected" in users
    assert users.is_quick == was_quick


def by_hand(block: Any) -> abc.Iterator[None]:
    block.__enter__()
    yield
    block.__exit__(None, None, None)


def by_a_stack(block: Any) -> abc.Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(block)
        yield


def by_a_statement(block: Any) -> abc.Iterator[None]:
    with block:
        yield


@pytest.mark.parametrize("way", [by_hand, by_a_stack, by_a_statement])
def test_a_block_that_somebody_keeps_ends_all_the_same(
    store: Store, users: Filter, way: abc.Callable[[Any], abc.Generator[None]]
) -> None:
    _ = "first" in users
    was_quick = users.is_quick
    block = store.batch()
    for key in ("once", "twice"):
        steps = way(block)
        next(steps)
        users.add(key)
        with pytest.raises(StopIteration):
            next(steps)
        assert not store._batches.open
        assert users.may_contain_many(["first", "once"]).all()
        assert users.is_quick == was_quick


def test_a_batch_that_is_interrupted_anywhere_ends_in_silence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps the tracebacks keeps no batch open, and nothing is removed twice later."""
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: printed.append(what.exc_value))
    users, kept = store.create("users", SPEC), []

    def add(last: int) -> None:
        steps = 0

        def count(frame: FrameType, _: str, __: object) -> Any:
            nonlocal steps
            frame.f_trace_opcodes = True
            steps += 1
            if steps == last:
                sys.settrace(None)
                raise KeyboardInterrupt
            return count

        sys.settrace(count)
        try:
            with store.batch():
                users.add(last)
        finally:
            sys.settrace(None)

    gc.disable()  # the collector would run finalizers inside, which print an interrupt as they must
    try:
        for last in range(1, 400):
            try:
                add(last)
            except KeyboardInterrupt as error:
                kept.append(error)
            assert not store._batches.open
    finally:
        gc.enable()
    assert kept
    kept.clear()
    gc.collect()
    assert printed == []


def test_a_filter_that_was_dropped_during_the_batch_is_named(store: Store) -> None:
    users = store.create("users", SPEC)
    thread = threading.Thread(target=lambda: store.drop("users"))
    with pytest.raises(FilterNotFound, match="users"), store.batch():
        users.add("a")
        thread.start()
        thread.join()


def test_the_work_of_a_batch_does_not_depend_on_the_number_of_filters(tmp_path: Path) -> None:
    def calls_of_a_batch(path: Path, filters: int) -> int:
        small = Dynamic(capacity=100, target_error=0.01)
        with bloomstore.open(path) as store:
            made = [store.create(f"f{number}", small) for number in range(filters)]
            for found in made:
                found.add("warm")
            time.sleep(0.2)  # until the time of the catalog's folder is believed
            made[0].add("warm, too")
            calls = 0

            def count(_: FrameType, event: str, __: object) -> None:
                nonlocal calls
                calls += event == "call"

            sys.setprofile(count)
            try:
                with store.batch():
                    made[0].add("a")
                    made[1].add("b")
            finally:
                sys.setprofile(None)
        assert_sound(path)
        return calls

    assert calls_of_a_batch(tmp_path / "few", 2) == calls_of_a_batch(tmp_path / "many", 40)
