"""A block that has not changed since its checksum was noted is verified before its first "no".

Whatever its stage, size and durability: `lazily` makes every active stage one that is too large to
be examined as a whole, so that its blocks are verified when they are needed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore import Fixed
from bloomstore.catalog.rows import Durability
from bloomstore.kernels import MAX_PRINTS_PER_CALL
from bloomstore.layout.layouts import Layout
from bloomstore.segment.header import BLOCK_BYTES, HEADER_BYTES, PAGE_BYTES, WORDS_BYTES
from bloomstore.segment.segment import read_header
from bloomstore.store.durable import trust
from bloomstore.store.write import bulk_load
from tests.faults.damage import flip_byte, in_a_process_that_is_killed
from tests.processes.worker import Worker
from tests.support.soundness import assert_sound

KEYS = np.arange(60_000)
LAYOUTS = ["plain", "sliced", "blocked"]
DURABILITIES: list[Durability] = ["commit", "process"]


@pytest.fixture(params=[True, False], ids=["lazily", "at once"])
def lazily(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(trust, "READ_WHOLE_BYTES", 0)
    return bool(request.param)


def make(path: Path, durability: Durability, layout: Layout = "blocked") -> Path:
    """A closed store with one filter of twenty blocks, and room left; returns its segment."""
    with bloomstore.open(path) as store:
        spec = Fixed(capacity=600_000, target_error=1e-4, layout=layout)
        store.create("users", spec, durability=durability).add_many(KEYS)
    (victim,) = (path / "segments").iterdir()
    assert read_header(victim).blocks >= 20
    return victim


def zero(victim: Path, block: int) -> None:
    with victim.open("r+b") as file:
        file.seek(HEADER_BYTES + block * BLOCK_BYTES + 64)
        file.write(bytes(BLOCK_BYTES - 128))


def own_page(victim: Path) -> tuple[int, int, int, bytes]:
    """Set bits, keys, whether the flags count, and the flags."""
    page = victim.read_bytes()[-PAGE_BYTES:]
    words = np.frombuffer(page[:24], np.uint64)
    return int(words[0]), int(words[1]), int(words[2]), page[WORDS_BYTES:]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("read_only", [True, False], ids=["reader", "writer"])
@pytest.mark.usefixtures("lazily")
def test_rot_in_a_closed_store_is_found_by_single_lookups(
    path: Path, durability: Durability, layout: Layout, read_only: bool
) -> None:
    zero(make(path, durability, layout), 2)
    with bloomstore.open(path, read_only=read_only) as store:
        users = store["users"]
        assert all(int(key) in users for key in KEYS[::37])
        assert users.may_contain_many(KEYS).all()
        assert "damaged blocks [2]" in str(users.state)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("how", ["one by one", "many", "a batch", "bulk"])
@pytest.mark.usefixtures("lazily")
def test_no_checkpoint_gives_rot_a_new_checksum(
    path: Path, durability: Durability, layout: Layout, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero(make(path, durability, layout), 2)
    late = np.arange(10**6, 10**6 + 2000)
    with bloomstore.open(path) as store:
        users = store["users"]  # which nobody asks for anything before the adds
        if how == "bulk":
            monkeypatch.setattr(bulk_load, "LEAST_KEYS", 1000)
            late = np.arange(10**6, 10**6 + 80_000)
            users.add_many(late)
        elif how == "many":
            users.add_many(late)
        elif how == "a batch":
            with store.batch():
                users.add_many(late)
        else:
            late = late[:40]
            for key in late.tolist():
                users.add(key)
        store.checkpoint()
    with bloomstore.open(path) as store:
        assert store["users"].may_contain_many(KEYS).all()
        assert store["users"].may_contain_many(late).all()
        assert "damaged blocks" in str(store["users"].state)
        assert len(list(store.check())) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("read_only", [True, False], ids=["reader", "writer"])
def test_rot_in_a_block_that_a_dirty_filter_has_not_changed_is_found(
    path: Path, layout: Layout, read_only: bool, lazily: bool
) -> None:
    victim = make(path, "process", layout)
    in_a_process_that_is_killed(lambda: bloomstore.open(path)["users"].add("late"))
    flags = own_page(victim)[3]
    blocks = range(read_header(victim).blocks)
    unchanged = [block for block in blocks if not flags[block]]
    assert unchanged
    zero(victim, unchanged[0])
    # Those that have changed cannot be verified, and are not trusted beside a damaged one.
    changed = [block for block in blocks if flags[block]]
    expected = sorted([unchanged[0], *([] if lazily else changed)])
    for _ in range(2):
        with bloomstore.open(path, read_only=read_only) as store:
            assert store["users"].may_contain_many(KEYS).all()
            assert "late" in store["users"]
            assert f"damaged blocks {expected}" in str(store["users"].state)
            problems = [str(problem) for problem in store.check()]
            assert all(any(f"block {block} " in line for line in problems) for block in expected)


@pytest.mark.parametrize("read_only", [True, False], ids=["reader", "writer"])
def test_rot_in_a_block_that_a_dirty_filter_has_changed_shows_in_the_count_of_its_bits(
    path: Path, read_only: bool
) -> None:
    victim = make(path, "process")
    in_a_process_that_is_killed(lambda: bloomstore.open(path)["users"].add_many(KEYS + 10**6))
    assert all(own_page(victim)[3][: read_header(victim).blocks])
    flip_byte(victim, random.Random(5), HEADER_BYTES, HEADER_BYTES + BLOCK_BYTES)
    with bloomstore.open(path, read_only=read_only) as store:
        assert store["users"].may_contain_many(KEYS).all()
        assert store["users"].may_contain_many(KEYS + 10**6).all()
        assert not store["users"].state.is_sound


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.usefixtures("lazily")
def test_blocks_that_a_writer_changes_meanwhile_are_not_taken_for_damaged(
    path: Path, durability: Durability
) -> None:
    make(path, durability)

    def write(pipe: Connection) -> None:
        with bloomstore.open(path) as store:
            users = store["users"]
            for key in range(10**6, 10**6 + 400):
                users.add(key)
                if key % 50 == 0:
                    store.checkpoint()
                    pipe.send(key)

    with Worker(write) as worker:
        for _ in range(8):
            worker.hear()
            with bloomstore.open(path, read_only=True) as store:
                users = store["users"]
                assert all(int(key) in users for key in KEYS[::5000])
                assert users.may_contain_many(KEYS).all()
                assert users.state.name in ("sound", "needs recovery"), users.state  # for a moment
        assert worker.end() == 0
    assert_sound(path)


@pytest.mark.parametrize(
    "point",
    [
        "process add: marked dirty#2",
        "process add: bits set#3",
        "checkpoint: memory synced#2",
        "checkpoint: catalog committed#2",
        "seal: marked",
    ],
)
def test_flags_are_right_after_a_crash_at_any_step(path: Path, point: str) -> None:
    work = """
import sys, bloomstore
from bloomstore import Scalable
store = bloomstore.open(sys.argv[1])
users = store.ensure("users", Scalable(target_error=0.01, initial_capacity=50_000),
                     durability="process")
for part in range(4):
    users.add_many(range(part * 20_000, (part + 1) * 20_000))
    users.add(f"single {part}")
    print(part, flush=True)
    store.checkpoint()
"""
    environment = os.environ | {"BLOOMSTORE_CRASH_AT": point}
    died = subprocess.run(
        [sys.executable, "-c", work, path], env=environment, stdout=subprocess.PIPE, check=False
    )
    assert died.returncode == -signal.SIGKILL
    parts = len(died.stdout.split())
    assert parts
    for read_only in (True, False):
        with bloomstore.open(path, read_only=read_only) as store:
            users = store["users"]
            assert users.may_contain_many(range(parts * 20_000)).all()
            assert all(f"single {part}" in users for part in range(parts))
            assert users.state.is_sound, users.state
    assert_sound(path)


def test_a_dirty_filter_of_an_older_version_has_no_flags_and_is_not_called_damaged(
    path: Path,
) -> None:
    victim = make(path, "process")
    in_a_process_that_is_killed(lambda: bloomstore.open(path)["users"].add("late"))
    with victim.open("r+b") as file:  # as it was written before there were flags
        file.seek(-PAGE_BYTES + 16, os.SEEK_END)
        file.write(bytes(PAGE_BYTES - 16))
    with bloomstore.open(path) as store:
        assert "late" in store["users"]
        assert store["users"].may_contain_many(KEYS).all()
        assert store["users"].state.is_sound
    assert own_page(victim)[2] == 1
    zero(victim, 1)
    with bloomstore.open(path) as store:
        assert store["users"].may_contain_many(KEYS).all()


def test_every_way_to_add_sets_the_flags_of_the_blocks_that_it_changes(path: Path) -> None:
    victim = make(path, "process", "sliced")
    before = victim.read_bytes()

    def changed() -> set[int]:
        now = victim.read_bytes()
        return {
            block
            for block in range(read_header(victim).blocks)
            if now[HEADER_BYTES + block * BLOCK_BYTES :][:BLOCK_BYTES]
            != before[HEADER_BYTES + block * BLOCK_BYTES :][:BLOCK_BYTES]
        }

    def flagged() -> set[int]:
        return {block for block, flag in enumerate(own_page(victim)[3]) if flag}

    with bloomstore.open(path) as store:
        users = store["users"]
        assert all(int(key) in users for key in KEYS[:100])
        assert flagged() == set()
        users.add("first, the slow way")
        for number in range(5):
            users.add(f"single {number}")
            assert changed() <= flagged()
        users.add_many(["several", "keys"])
        assert changed() <= flagged()
        with store.batch():
            users.add("of a batch")
        assert changed() <= flagged()
        users.add_many(np.arange(10**7, 10**7 + MAX_PRINTS_PER_CALL // 4))
        assert changed() <= flagged() == set(range(read_header(victim).blocks))
        store.checkpoint()
        assert flagged() == set()
        users.add("after all flags were set")
        before = victim.read_bytes()
        users.add("and one more")
        assert changed() <= flagged()
    assert flagged() == set()
    assert_sound(path)


def test_flags_of_a_large_vector_stand_for_groups_of_blocks(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create(
            "users", Fixed(capacity=300_000_000, target_error=0.01), durability="process"
        )
        segment = users._view.live.newest.segment
        assert segment is not None
        assert segment.header.blocks > 4032 >= len(segment.flags) > 2016
        users.add("alice")
        users.add_many(["bob", "carol"])
        flagged = segment.flagged_blocks()
        assert len(flagged) == 2 * np.count_nonzero(segment.flags)
        in_use = {int(at) // BLOCK_BYTES for at in np.flatnonzero(segment.shared)}
        assert in_use <= flagged
        store.drop("users")
    shutil.rmtree(path)
