"""Threads share a commit, and each gets its own answer."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.errors import FilterFull


def test_threads_that_wait_are_committed_together(store: bloomstore.Store) -> None:
    users = store.create("users", Scalable(target_error=1e-6, initial_capacity=100_000))
    gate = threading.Barrier(8)

    def add(thread: int) -> int:
        gate.wait()
        return sum(users.add(f"{thread} {number}") for number in range(100))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(add, range(8))) == 800
    names = [f"{thread} {number}" for thread in range(8) for number in range(100)]
    assert users.may_contain_many(names).all()
    stats = users.stats()
    assert stats.keys == 800


def test_requests_that_wait_for_the_lock_become_one_journal_row(store: bloomstore.Store) -> None:
    users = store.create("users", Scalable(target_error=1e-6, initial_capacity=100_000))
    with ThreadPoolExecutor(8) as pool:
        with store._core.lock.threads():
            adds = [pool.submit(users.add, number) for number in range(8)]
            while len(store._group._requests) < 8:
                time.sleep(0.001)
        assert all(add.result() for add in adds)
    assert users.stats().journal_rows == 1


def test_the_same_key_from_many_threads_is_new_once(store: bloomstore.Store) -> None:
    users = store.create("users", Scalable(target_error=1e-6))
    for number in range(20):
        gate = threading.Barrier(6)

        def add(_: int, gate: threading.Barrier = gate, number: int = number) -> bool:
            gate.wait()
            return users.add(number)

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(add, range(6))) == 1


def test_a_full_filter_fails_its_own_threads_only(store: bloomstore.Store) -> None:
    small = store.create("small", Fixed(capacity=20, target_error=0.01))
    large = store.create("large", Scalable(target_error=0.01))
    gate = threading.Barrier(4)

    def fill(thread: int) -> int:
        gate.wait()
        if thread % 2:
            return large.add_many(range(thread * 1000, thread * 1000 + 300))
        with pytest.raises(FilterFull):
            for number in range(500):
                small.add(f"{thread} {number}")
        return 0

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(4)))
    assert large.may_contain_many([*range(1000, 1300), *range(3000, 3300)]).all()
    assert small.stats().error_rate <= 0.01
