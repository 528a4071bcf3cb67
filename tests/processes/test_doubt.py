"""Doubt under concurrency: damage, interrupts and repair never make a "no" of an added key."""

from __future__ import annotations

import contextlib
import errno
import gc
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import lmdb
import numpy as np
import pytest

import bloomstore
from bloomstore import Scalable
from bloomstore.catalog.catalog import Catalog
from bloomstore.catalog.environment import TABLES
from bloomstore.catalog.transaction import Writing
from bloomstore.errors import StoreFailed
from bloomstore.segment import blocks
from bloomstore.segment import segment as segment_module
from bloomstore.segment.blocks import touched_blocks
from bloomstore.segment.header import BLOCK_BYTES, HEADER_BYTES
from bloomstore.segment.segment import Segment
from bloomstore.store.process import damage as damage_module
from bloomstore.store.process import open_files as core_module
from bloomstore.store.write import growth, single_commit, writer
from tests.processes.worker import Worker, open_server
from tests.support.soundness import assert_sound

SPEC = Scalable(target_error=0.01, initial_capacity=1000)


def zero(path: Path, *blocks: int) -> None:
    """Zeroes most of some blocks of the first segment."""
    victim = min((path / "segments").iterdir())
    with victim.open("r+b") as file:
        for block in blocks:
            file.seek(HEADER_BYTES + block * BLOCK_BYTES)
            file.write(bytes(200 if block == 0 and len(blocks) == 1 else 60_000))


def test_two_threads_that_find_damage_in_one_stage_both_remember_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = 250_000
    with bloomstore.open(path) as store:
        spec = Scalable(target_error=0.01, initial_capacity=200_000, layout="blocked")
        store.create("users", spec).add_many(range(keys))
    zero(path, 0, 1)
    real = blocks.damaged_blocks
    together = threading.Barrier(2)

    def slow(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        # Both have looked before either goes on, unless a lock keeps one out.
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.5)
        return found

    with bloomstore.open(path, read_only=True) as store:
        users = store["users"]
        damaged = users._view.live.stages[0].segment
        assert damaged is not None
        monkeypatch.setattr(segment_module, "damaged_blocks", slow)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(damaged.verify, ([0], [1])))
        monkeypatch.undo()
        assert set(damaged.damaged) == {0, 1}
        assert users.may_contain_many(range(keys)).all()
        assert all(key in users for key in range(0, keys, 100))


def test_the_end_of_a_batch_does_not_forget_damage(path: Path) -> None:
    with bloomstore.open(path) as store:
        store.create("users", SPEC).add_many(range(2500))
    zero(path, 0)
    with bloomstore.open(path) as store:
        users = store["users"]
        users.add_many(range(10_000, 10_010))
        with store.batch():
            pass
        assert all(key in users for key in range(2500))
        assert users.may_contain_many(range(2500)).all()
        assert not users.state.is_sound


def test_a_lock_file_of_ones_does_not_make_a_doubtful_filter_certain(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        users.add_many(range(3000))
        users.fence("under repair")
    (path / "lock").write_bytes(b"\xff" * 4096)
    with bloomstore.open(path, read_only=True) as store:
        assert "nobody" in store["users"]
    min((path / "segments").iterdir()).unlink()
    with bloomstore.open(path, read_only=True) as store:
        assert all(key in store["users"] for key in range(3000))


def test_repair_doubts_the_live_chain_although_a_rebuild_was_begun(path: Path) -> None:
    older = path.with_name("older")
    with bloomstore.open(path) as store:
        store.create("users", SPEC).add_many(range(10))

    def begin_and_die(pipe: Connection) -> None:
        store = bloomstore.open(path)
        rebuild = store.rebuild("users")
        rebuild.__enter__()
        store.checkpoint()
        shutil.copytree(path / "segments", older)
        store["users"].add_many(range(100, 200))

    with Worker(begin_and_die) as worker:
        assert worker.end() == 0
    # As if the machine had gone down: the pages are lost, and the journal is damaged.
    shutil.rmtree(path / "segments")
    shutil.move(older, path / "segments")
    with lmdb.open(str(path / "catalog"), max_dbs=len(TABLES), map_size=1 << 30) as environment:
        journal = environment.open_db(b"journal")
        with environment.begin(write=True, db=journal) as transaction:
            for key, row in list(transaction.cursor()):
                transaction.put(key, row[:-1] + bytes([row[-1] ^ 1]))
    with bloomstore.open(path) as store:
        assert [done for done in store.repair() if done.needs_rebuild]
        assert store["users"].may_contain_many(range(100, 200)).all()
        assert store["users"].may_contain_many(range(10)).all()


def test_a_filter_written_to_while_it_is_verified_is_not_called_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(path) as store:
        store.create("users", SPEC, durability="process").add_many(range(10))
    with bloomstore.open(path) as store:  # the first to open it: it verifies at first use
        real = blocks.touched_blocks

        def meanwhile(pipe: Connection) -> None:
            store.close()  # what it inherited
            with bloomstore.open(path) as other:
                other["users"].add_many(range(100))
                other.checkpoint()

        def touched(*arguments: object) -> object:
            monkeypatch.undo()
            with Worker(meanwhile) as worker:
                assert worker.end() == 0
            return real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(damage_module, "touched_blocks", touched)
        assert store["users"].state.is_sound
        assert "nobody" not in store["users"]
    assert_sound(path)


@pytest.mark.parametrize(
    "point", ["process add: bits set", "generation: committed", "seal: next stage published"]
)
def test_an_interrupt_while_the_lock_is_kept_leaves_true_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    spec = Scalable(target_error=0.01, initial_capacity=100)
    with bloomstore.open(path) as store:
        users = store.create("users", spec, durability="process")
        users.add(-1)
        interrupts = 0

        def interrupt(name: str) -> None:
            nonlocal interrupts
            if name == point and not interrupts:
                interrupts += 1
                raise KeyboardInterrupt

        for module in (writer, growth):
            monkeypatch.setattr(module, "crash_point", interrupt)
        monkeypatch.setattr(core_module, "crash_point", interrupt)
        for first in range(0, 400, 20):
            try:
                users.add_many(range(first, first + 20))
            except KeyboardInterrupt:
                users.add_many(range(first, first + 20))
        assert interrupts == 1
        assert users.may_contain_many(range(400)).all()
    assert_sound(path)


def test_a_stage_that_could_not_be_opened_stays_dirty(path: Path) -> None:
    with bloomstore.open(path) as store:
        store.create("users", SPEC, durability="process")
    with open_server(path) as victim:
        victim.ask("add many", "users", list(range(500)))
        victim.kill()
    store = bloomstore.open(path)
    (segment,) = (path / "segments").iterdir()
    segment.rename(path / "aside")  # stands for an error of a moment: too many open files
    store.close()
    (path / "aside").rename(segment)
    assert_sound(path)
    with bloomstore.open(path) as store:
        assert store["users"].may_contain_many(range(500)).all()
        assert store["users"].state.is_sound
        assert store["users"].stats().keys > 480


def test_a_process_without_descriptors_doubts_for_a_moment_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(path) as store:
        store.create("users", SPEC).add_many(range(100))

    def refuse(path: Path, *_: object, **__: object) -> Segment:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with bloomstore.open(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(core_module, "open_segment", refuse)
            users = store["users"]
            assert "never added" in users
            assert "Too many open files" in str(users.state)
            with pytest.raises(StoreFailed, match="Too many open files"):
                users.add("refused")
        assert users.state.is_sound
        assert "never added" not in users
        users.add("accepted")
        assert len(users.stats().stages) == 1  # no other was made for want of a descriptor
    assert_sound(path)


def test_rows_that_cannot_be_applied_for_want_of_a_descriptor_are_applied_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(path) as store:
        store.create("users", SPEC)

    def add_and_die(pipe: Connection) -> None:
        with bloomstore.open(path) as store:
            store["users"].add_many(range(50))
            pipe.send("added")
            pipe.recv()

    with Worker(add_and_die) as worker:
        assert worker.hear() == "added"
        worker.kill()

    def refuse(path: Path, *_: object, **__: object) -> Segment:
        raise OSError(errno.ENFILE, "Too many open files in system", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(core_module, "open_segment", refuse)
        with pytest.raises(StoreFailed, match="Too many open files in system"):
            bloomstore.open(path)
    with bloomstore.open(path) as store:
        assert store["users"].state.is_sound
        assert store["users"].may_contain_many(range(50)).all()
    assert_sound(path)


@pytest.mark.parametrize("way", ["general", "ordinary"])
def test_an_interrupt_at_the_end_of_a_change_keeps_nobody_waiting(
    path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "general":
        monkeypatch.setattr(single_commit, "add", lambda *_: None)
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        users.add("first")

        def interrupt(frame: FrameType, event: str, _: object) -> None:
            of = frame.f_locals.get("self")
            ends = event == "call" and frame.f_code.co_name == "__exit__"
            begins = event == "call" and frame.f_code.co_name == "commit"
            if (ends and isinstance(of, Writing)) or (begins and isinstance(of, Catalog)):
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt) as kept:  # as debuggers and notebooks keep it
                users.add("second")
        finally:
            sys.setprofile(None)

        def add(pipe: Connection) -> None:
            pipe.send(store["users"].add("third"))

        with Worker(add) as worker:
            assert worker.hear()
        assert users.add("second")
        assert users.may_contain_many(["first", "second", "third"]).all()
        del kept
        gc.collect()
        assert users.add("fourth")
    assert_sound(path)


def test_the_blocks_of_many_small_batches_are_those_of_one(path: Path) -> None:
    prints = np.random.default_rng(1).integers(0, 1 << 63, (40_000, 2)).astype(np.uint64)
    first = Scalable(target_error=0.01, initial_capacity=10**6).stage(0, ())
    assert first is not None
    singles = [prints[number : number + 1] for number in range(len(prints))]
    whole = touched_blocks(first.geometry, [prints])
    assert touched_blocks(first.geometry, singles) == whole
    assert touched_blocks(first.geometry, []) == set()
