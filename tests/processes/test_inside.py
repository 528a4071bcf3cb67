"""A change inside another one of the same thread is refused: no acknowledged key is lost.

Code of others runs in the middle of an add: that of a key while it is hashed, finalizers, signal
handlers. What they add there would be forgotten by the add around it.
"""

from __future__ import annotations

import datetime as dt
import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Dynamic
from bloomstore.errors import StoreLocked
from tests.support.soundness import assert_sound

SPEC = Dynamic(capacity=300, target_error=0.01)  # it grows all the time


@pytest.fixture(params=["commit", "process"])
def users(request: pytest.FixtureRequest, path: Path) -> Iterator[bloomstore.Filter]:
    with bloomstore.open(path, durability=request.param) as store:
        yield store.create("users", SPEC)
    assert_sound(path)


class Asides:
    """Adds that are made whenever somebody comes along, and those that were acknowledged."""

    def __init__(self, users: bloomstore.Filter) -> None:
        self._users = users
        self.acknowledged: list[str] = []
        self.refused = self.calls = 0

    def __call__(self, *_: object) -> None:
        self.calls += 1
        keys = [f"aside {self.calls} {number}" for number in range(50)]
        try:
            self._users.add_many(keys)
        except StoreLocked as error:
            assert "in the middle of another change" in str(error)  # noqa: PT017
            self.refused += 1
        else:
            self.acknowledged += keys


def add_rounds(users: bloomstore.Filter, asides: Asides, before: Callable[[], object]) -> None:
    """Adds until enough asides were refused, and finds all keys of both."""
    keys: list[str] = []
    for turn in range(3000):
        before()
        fresh = [f"key {turn} {number}" for number in range(50)]
        users.add_many(fresh)
        keys += fresh
        if asides.refused >= 20:
            break
    assert asides.refused
    assert users.state.is_sound
    assert users.may_contain_many(keys).all()
    assert users.may_contain_many(asides.acknowledged).all()


def test_a_signal_handler_that_adds_loses_nothing(users: bloomstore.Filter) -> None:
    asides = Asides(users)
    usual = signal.signal(signal.SIGALRM, asides)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    try:
        add_rounds(users, asides, lambda: None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


def test_a_finalizer_that_adds_loses_nothing(users: bloomstore.Filter) -> None:
    asides = Asides(users)

    class Last:
        def __del__(self) -> None:
            asides()

    def make_cycles() -> None:
        for _ in range(20):
            one = Last()
            one.myself = one  # type: ignore[attr-defined]

    usual = gc.get_threshold()
    gc.set_threshold(30)
    try:
        add_rounds(users, asides, make_cycles)
    finally:
        gc.set_threshold(*usual)
        gc.collect()


def test_a_key_whose_code_adds_during_a_bulk_load_loses_nothing(
    users: bloomstore.Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bloomstore.store.write.bulk_load.LEAST_KEYS", 1000)
    monkeypatch.setattr("bloomstore.store.write.writer.TURN_KEYS", 500)
    asides = Asides(users)

    class Zone(dt.tzinfo):
        def utcoffset(self, moment: dt.datetime | None) -> dt.timedelta:
            asides()
            return dt.timedelta(0)

        def dst(self, moment: dt.datetime | None) -> None: ...

        def tzname(self, moment: dt.datetime | None) -> None: ...

    keys: list[object] = list(range(2000))
    keys[1500] = dt.datetime(2020, 1, 1, tzinfo=Zone())
    users.add_many(keys)  # type: ignore[arg-type]
    assert asides.refused
    assert users.may_contain_many(keys).all()  # type: ignore[arg-type]
    assert users.may_contain_many(asides.acknowledged).all()
