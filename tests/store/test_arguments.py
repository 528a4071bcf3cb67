"""Whatever a caller gives that cannot be used raises an error of bloomstore.errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomstore
from bloomstore import ByRate, Dynamic, Filter, Fixed, Flexible, Scalable, Sequence
from bloomstore.errors import (
    BloomStoreError,
    KeysChanged,
    KeyValueError,
    NoteNotFound,
    SpecError,
    StoreFailed,
)

NEARLY_1 = 1 - 1e-16
NUMBERS: list[Any] = [
    NEARLY_1, 1 - 1e-12, 1.0, 0.0, -1, 10**400, -(10**400), float("nan"), float("inf"), 5e-324,
    "x", None, True, [1], Decimal("0.1"), 2**62, 2**62 - 1, 10**18, 1.5,
]  # fmt: skip


@pytest.mark.parametrize("layout", ["plain", "sliced", "blocked", None, "other", ["plain"], 1])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{number!r:.20}")
def test_a_spec_gives_stages_or_a_spec_error(layout: Any, number: Any) -> None:
    specs: list[Callable[[], Any]] = [
        lambda: Fixed(capacity=1000, target_error=number, layout=layout),
        lambda: Fixed(capacity=number, target_error=0.01, layout=layout),
        lambda: Dynamic(capacity=1000, target_error=number, layout=layout),
        lambda: Scalable(target_error=number, layout=layout),
        lambda: Scalable(target_error=0.01, initial_capacity=number, layout=layout),
        lambda: Scalable(target_error=0.01, growth=number, layout=layout),
        lambda: Scalable(target_error=0.01, tightening=number, layout=layout),
        lambda: Fixed(capacity=10, target_error=0.1, seed=number),
        lambda: Fixed(capacity=10, target_error=0.1, scheme=number),
        lambda: Flexible(baseline_bits=1024, hashes=number, error=0.01),
        lambda: Flexible(baseline_bits=number, hashes=3, error=0.01),
        lambda: Flexible(baseline_bits=1024, hashes=7, error=number),
        lambda: Flexible(baseline_bits=1024, hashes=7, capacity=number),
        lambda: Flexible(baseline_bits=1024, hashes=7, error=0.1, expansion=number),
        lambda: Sequence(number),
        lambda: ByRate(max_speed=number),
        lambda: ByRate(predictor=number),
    ]
    for make in specs:
        try:
            spec = make()
            if hasattr(spec, "stage"):
                for stage in (0, 1, 40, 1000):
                    spec.stage(stage, (1.0, 2.0))
        except SpecError:
            pass


def test_an_error_within_rounding_of_one_is_refused_by_name(tmp_path: Path) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        for family in (Fixed, Dynamic):
            with pytest.raises(SpecError, match=r"target_error must be in .*, 0.99\]"):
                store.create("f", family(capacity=1000, target_error=NEARLY_1))
        assert list(store) == []


LONE = "\ud800"


def test_names_with_lone_surrogates_are_refused(tmp_path: Path) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        for name in (LONE, "a" + LONE, "", "x" * 500, 5, None, b"x", ["x"]):
            bad: Any = name
            for use in (
                lambda bad=bad: store.create(bad, Fixed(capacity=10, target_error=0.1)),
                lambda bad=bad: store[bad],
                lambda bad=bad: store.drop(bad),
                lambda bad=bad: store.notes.__setitem__(bad, b""),
                lambda bad=bad: store.notes[bad],
                lambda bad=bad: store.notes.__delitem__(bad),
                lambda bad=bad: store.notes.change(bad, lambda _: b""),
            ):
                with pytest.raises(SpecError, match="name"):
                    use()
            assert bad not in store
        with pytest.raises(SpecError, match="value is bytes, got int"):
            store.notes.change("a", lambda _: 5)  # type: ignore[arg-type,return-value]
        with pytest.raises(NoteNotFound, match="no note named 'a'"):
            store.notes["a"]
        with pytest.raises(NoteNotFound, match="no note named 'a'"):
            del store.notes["a"]
        assert "a" not in store.notes
        assert store.notes.get("a") is None
        store.notes["\u65e5\U0001f389"] = b"1"
        assert dict(store.notes) == {"\u65e5\U0001f389": b"1"}


def test_paths_and_options_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    for path in (5, None, b"x", [1], str(tmp_path / "a\0b"), str(tmp_path / LONE)):
        with pytest.raises(SpecError, match="a store's path is"):
            bloomstore.open(path)  # type: ignore[arg-type]
    for seconds in ("x", None, float("nan"), -1, True, [1]):
        with pytest.raises(SpecError, match="lock_seconds"):
            bloomstore.open(tmp_path / "s", lock_seconds=seconds)  # type: ignore[arg-type]
    wrong: list[Any] = ["x", None, ["commit"], {}]
    for durability in wrong:
        with pytest.raises(SpecError, match="durability"):
            bloomstore.open(tmp_path / "s", durability=durability)
    assert list(tmp_path.iterdir()) == []


def test_a_released_memoryview_is_refused_by_every_call(tmp_path: Path) -> None:
    view = memoryview(bytearray(b"abc"))
    view.release()
    with bloomstore.open(tmp_path / "s") as store:
        seen = store.create("seen", Scalable(target_error=0.01))
        for ask in (seen.add, seen.__contains__):
            with pytest.raises(KeyValueError, match="cannot be read"):
                ask(view)
        for many in (seen.add_many, seen.may_contain_many):
            with pytest.raises(KeyValueError, match=r"^key 2 of the batch: "):
                many(["a", "b", view])


def add_then_find(seen: Filter, keys: list[Any]) -> int:
    seen.add_many(keys)
    return len(seen.may_contain_many(keys))


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("key", ["text", 0.5], ids=["plain", "general"])
def test_a_list_that_another_thread_changes_gives_no_answers_of_a_wrong_length(
    tmp_path: Path, durability: Any, key: Any
) -> None:
    few, many = 10, 20_000  # more than one chunk
    keys = [key] * many
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            del keys[few:]
            time.sleep(0)
            keys.extend([key] * (many - few))
            time.sleep(0)

    with bloomstore.open(tmp_path / "s", durability=durability) as store:
        seen = store.create("seen", Scalable(target_error=0.01))
        thread = threading.Thread(target=change)
        thread.start()
        try:
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                for ask in (seen.may_contain_many, seen.add_many):
                    try:
                        answer = ask(keys)
                    except KeysChanged:
                        continue
                    except BloomStoreError as error:
                        pytest.fail(f"{type(error).__name__}: {error}")
                    if isinstance(answer, np.ndarray):
                        assert len(answer) in (few, many)
        finally:
            ended.set()
            thread.join()
        assert add_then_find(seen, keys) == many


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000, "loop", "file/x", "file"])
def test_a_path_that_cannot_be_used_is_an_error_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    path = tmp_path / name
    ways: list[dict[str, Any]] = [{}, {"read_only": True}, {"create": False}]
    for options in ways:
        with pytest.raises(BloomStoreError, match=name[:3]):
            bloomstore.open(path, **options)
    with bloomstore.open(tmp_path / "store") as store, pytest.raises(StoreFailed, match=name[:3]):
        store.backup(path)
