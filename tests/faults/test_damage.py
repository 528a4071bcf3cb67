"""Damage to a closed store: no acknowledged key is ever "no", and `check` names the place."""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore import Durability, Filter, FilterSpec, Fixed, Scalable
from bloomstore.errors import FilterFull
from bloomstore.layout.layouts import Layout
from bloomstore.segment.header import BLOCK_BYTES, HEADER_BYTES
from bloomstore.segment.segment import read_header
from tests.faults.damage import (
    KEYS,
    NAMES,
    damage_row,
    flip_byte,
    in_a_process_that_is_killed,
    make_store,
    read,
    zero_run,
)

ROUNDS = 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "store"
    make_store(path)
    return path


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


def segments(path: Path) -> list[Path]:
    return sorted((path / "segments").iterdir())


def assert_no_key_is_lost(path: Path, what: str, *, seen: bool = True) -> None:
    for read_only in (True, False):
        verdict = read(path, read_only=read_only)
        assert not verdict.lost, f"{what}: {len(verdict.lost)} keys lost, {verdict.lost[:3]}"
        if seen:
            assert verdict.problems or verdict.refused, f"{what}: nobody noticed"


def test_the_undamaged_copy_is_sound(copy: Path) -> None:
    verdict = read(copy, read_only=True)
    assert (verdict.lost, verdict.problems, verdict.refused) == ([], [], "")


@pytest.mark.parametrize("first", range(0, HEADER_BYTES, 64))
def test_every_byte_of_a_header_counts(sound: Path, tmp_path: Path, first: int) -> None:
    (name,) = [path.name for path in segments(sound)][:1]
    for at in range(first, first + 64, 1 if first < 128 else 16):
        path = Path(shutil.copytree(sound, tmp_path / str(at)))
        with (path / "segments" / name).open("r+b") as file:
            file.seek(at)
            old = file.read(1)[0]
            file.seek(at)
            file.write(bytes([old ^ 0x10]))
        with bloomstore.open(path, read_only=True) as store:
            found = [problem for problem in store.check() if problem.path.name == name]
            assert found, f"byte {at} was not noticed"
            for filter_name in NAMES:
                assert store[filter_name].may_contain_many(KEYS).all()
        shutil.rmtree(path)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_damage_to_a_vector_is_noticed_and_loses_nothing(copy: Path, seed: int) -> None:
    chance = random.Random(seed)
    victim = chance.choice(segments(copy))
    header = read_header(victim)
    last = HEADER_BYTES + header.spec.geometry.vector_bytes
    if seed % 2:
        what = flip_byte(victim, chance, HEADER_BYTES, last)
    else:
        before = victim.read_bytes()
        what = zero_run(victim, chance, HEADER_BYTES, last)
        if victim.read_bytes() == before:
            return  # zeros over zeros are no damage
    assert_no_key_is_lost(copy, what)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_damage_to_a_catalog_row_loses_nothing(copy: Path, seed: int) -> None:
    what = damage_row(copy, random.Random(seed))
    assert_no_key_is_lost(copy, what, seen=False)


def cut(path: Path) -> None:
    victim = segments(path)[0]
    with victim.open("r+b") as file:
        file.truncate(victim.stat().st_size - 4096)


def cut_to_nothing(path: Path) -> None:
    segments(path)[0].write_bytes(b"")


def lengthen(path: Path) -> None:
    with segments(path)[0].open("ab") as file:
        file.write(bytes(4096))


def remove(path: Path) -> None:
    segments(path)[0].unlink()


def swap(path: Path) -> None:
    first, second = segments(path)[:2]
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def of_another_store(path: Path) -> None:
    other = path.with_name("other")
    make_store(other)
    shutil.copy(segments(other)[0], segments(path)[0])


def a_folder(path: Path) -> None:
    victim = segments(path)[0]
    victim.unlink()
    victim.mkdir()


def cut_the_catalog(path: Path) -> None:
    data = path / "catalog" / "data.mdb"
    with data.open("r+b") as file:
        file.truncate(data.stat().st_size // 2)


def empty_the_catalog(path: Path) -> None:
    (path / "catalog" / "data.mdb").write_bytes(b"")


def remove_the_catalog_file(path: Path) -> None:
    (path / "catalog" / "data.mdb").unlink()


def remove_the_lock(path: Path) -> None:
    (path / "lock").unlink()


def remove_the_users(path: Path) -> None:
    (path / "users").unlink()


def cut_the_lock(path: Path) -> None:
    (path / "lock").write_bytes(b"")


def remove_the_segments(path: Path) -> None:
    shutil.rmtree(path / "segments")


DAMAGES: list[Callable[[Path], None]] = [
    cut,
    cut_to_nothing,
    lengthen,
    remove,
    swap,
    of_another_store,
    a_folder,
    cut_the_catalog,
    empty_the_catalog,
    remove_the_catalog_file,
    remove_the_lock,
    remove_the_users,
    cut_the_lock,
    remove_the_segments,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_missing_short_and_swapped_files_lose_nothing(
    copy: Path, damage: Callable[[Path], None]
) -> None:
    damage(copy)
    assert_no_key_is_lost(copy, damage.__name__)


def test_garbage_in_the_lock_file_loses_nothing(copy: Path) -> None:
    (copy / "lock").write_bytes(random.Random(1).randbytes(4096))
    assert_no_key_is_lost(copy, "garbage words", seen=False)


def test_an_older_segment_loses_nothing(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", Scalable(target_error=0.01, initial_capacity=5000))
        users.add_many(range(100))
    (victim,) = segments(path)
    older = victim.read_bytes()
    with bloomstore.open(path) as store:
        store["users"].add_many(range(100, 200))
    victim.write_bytes(older)
    for read_only in (True, False):
        with bloomstore.open(path, read_only=read_only) as store:
            assert store["users"].may_contain_many(range(200)).all()
            assert not store["users"].state.is_sound
            assert list(store.check())


OPENED_SECOND = """
import sys, bloomstore
store = bloomstore.open(sys.argv[1])
users = store["users"]
print(users.state, users.may_contain_many(range(200)).all(), list(store.check()))
"""


def leave_an_older_segment(path: Path) -> None:
    """A writer dies; the journal has all keys, the pages of its segment are those before it."""

    def write() -> None:
        store = bloomstore.open(path)
        users = store.create("users", Fixed(capacity=5000, target_error=0.001))
        users.add_many(range(100))
        store.checkpoint()
        shutil.copy(segments(path)[0], path / "older")
        users.add_many(range(100, 150))
        users.add_many(range(150, 200))

    in_a_process_that_is_killed(write)
    with segments(path)[0].open("r+b") as file:
        file.write((path / "older").read_bytes())


def test_an_older_segment_gets_its_journal_rows_from_whoever_opens_it_second(path: Path) -> None:
    leave_an_older_segment(path)
    with bloomstore.open(path, read_only=True) as reader:
        assert reader["users"].state.name == "needs recovery"
        assert reader["users"].may_contain_many(range(200)).all()

        # The words are of this boot, and say that all is applied.
        second = subprocess.run(
            [sys.executable, "-c", OPENED_SECOND, path], capture_output=True, text=True, check=True
        )
        assert second.stdout == "sound True []\n"
        assert reader["users"].state.is_sound
        assert reader["users"].may_contain_many(range(200)).all()
        assert 10**9 not in reader["users"]


def test_an_older_segment_gets_its_journal_rows_from_whoever_uses_it_first(path: Path) -> None:
    with bloomstore.open(path) as store:
        leave_an_older_segment(path)
        assert store["users"].state.is_sound
        assert store["users"].may_contain_many(range(200)).all()
        assert 10**9 not in store["users"]


def test_an_older_catalog_loses_nothing(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", Scalable(target_error=0.01, initial_capacity=100))
        users.add_many(range(50))
    older = Path(shutil.copytree(path / "catalog", path.with_name("older")))
    with bloomstore.open(path) as store:
        store["users"].add_many(range(50, 1000))
    shutil.rmtree(path / "catalog")
    shutil.move(older, path / "catalog")
    for read_only in (True, False):
        with bloomstore.open(path, read_only=read_only) as store:
            assert store["users"].may_contain_many(range(1000)).all()
            assert "rolled back" in str(store["users"].state)
            assert any("rolled back" in str(problem) for problem in store.check())


def test_a_damaged_block_answers_maybe_and_the_rest_stays_useful(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create(
            "users", Scalable(target_error=0.01, initial_capacity=500_000, layout="blocked")
        )
        users.add_many(range(600_000))
    first = segments(path)[0]
    flip_byte(first, random.Random(1), HEADER_BYTES, HEADER_BYTES + 65536)
    with bloomstore.open(path) as store:
        users = store["users"]
        assert users.may_contain_many(range(600_000)).all()
        maybe = users.may_contain_many(range(1_000_000, 1_100_000)).mean()
        assert 0.03 < maybe < 0.2  # one block of about fifteen
        assert str(users.state) == "damaged: stage 0: damaged blocks [0]"
        (problem, *_) = store.check()
        assert problem.offset == HEADER_BYTES
        assert problem.path.name == first.name
        # A key that only the damaged block seems to report is still added.
        before = users.stats().keys
        users.add_many(range(1_000_000, 1_001_000))
        assert users.stats().keys - before > 980


LIVES = [
    (family, layout, durability)
    for family in ("fixed", "scalable")
    for layout in ("plain", "sliced", "blocked")
    for durability in ("commit", "process")
]
MANY = np.arange(150_000)
ABSENT = np.arange(10**9, 10**9 + 400_000)


def make_large(path: Path, family: str, layout: Layout, durability: Durability) -> None:
    """A filter whose newest stage has several blocks and room left."""
    spec: FilterSpec = Scalable(target_error=0.02, initial_capacity=130_000, layout=layout)
    if family == "fixed":
        spec = Fixed(capacity=200_000, target_error=0.02, layout=layout)
    with bloomstore.open(path) as store:
        store.create("users", spec, durability=durability).add_many(MANY)


def zero(victim: Path, first: int, count: int) -> None:
    with victim.open("r+b") as file:
        file.seek(HEADER_BYTES + first * BLOCK_BYTES + 100)
        file.write(bytes(count * BLOCK_BYTES - 200))


def assert_error_is_told(users: Filter) -> None:
    """What is measured is what `stats` says, within four standard deviations of both."""
    measured = float(users.may_contain_many(ABSENT).mean())
    told = users.stats().error_rate
    spread = math.sqrt(told * (1 - told) / len(ABSENT)) + 0.004 * told
    assert abs(measured - told) < 4 * spread, f"measured {measured}, told {told}"


@pytest.mark.parametrize(("family", "layout", "durability"), LIVES)
@pytest.mark.parametrize("read_only", [True, False], ids=["reader", "writer"])
def test_damaged_blocks_of_the_newest_stage_answer_maybe_for_their_own_keys(
    path: Path, family: str, layout: Layout, durability: Durability, read_only: bool
) -> None:
    make_large(path, family, layout, durability)
    zero(segments(path)[-1], 1, 1)
    late = np.arange(200_000, 220_000)
    with bloomstore.open(path, read_only=read_only) as store:
        users = store["users"]
        assert users.may_contain_many(MANY).all()
        assert str(users.state).endswith("damaged blocks [1]")
        assert users.stats().state == users.state
        assert_error_is_told(users)
        assert abs(users.estimate_count().value - len(MANY)) < 3000
        if not read_only:
            assert users.add_many(late) > 0.5 * len(late)
            users.add("a single key")  # False where only ones report it
            assert users.may_contain_many(late).all()
            assert_error_is_told(users)
    if read_only:
        return
    with bloomstore.open(path) as store:
        users = store["users"]
        assert users.may_contain_many(MANY).all()
        assert users.may_contain_many(late).all()
        assert "a single key" in users
        assert "damaged blocks [1]" in str(users.state)
        assert [str(done).endswith("rebuild the filter") for done in store.repair()] == [True]
        assert_error_is_told(users)


@pytest.mark.parametrize("layout", ["plain", "sliced", "blocked"])
def test_the_error_is_told_whatever_is_damaged_in_sealed_stages(path: Path, layout: Layout) -> None:
    make_large(path, "scalable", layout, "commit")
    zero(segments(path)[0], 0, 2)
    for read_only in (True, False):
        with bloomstore.open(path, read_only=read_only) as store:
            assert_error_is_told(store["users"])
    with bloomstore.open(path) as store:
        list(store.repair())
        assert_error_is_told(store["users"])
        assert "stage 0: damaged blocks [0, 1]" in str(store["users"].state)


def test_damage_that_one_process_finds_is_told_to_the_others(path: Path) -> None:
    make_large(path, "fixed", "sliced", "commit")
    zero(segments(path)[0], 1, 1)
    with bloomstore.open(path) as store:
        assert "nobody" not in store["users"]

        def ask() -> None:  # from the row and the file, without a checksum of their own
            assert "damaged blocks [1]" in str(store["users"].state)
            assert store["users"].may_contain_many(MANY).all()
            store["users"].add("somebody")

        in_a_process_that_is_killed(ask)
        assert "somebody" in store["users"]


def test_ones_that_went_with_the_machine_are_set_again(path: Path) -> None:
    make_large(path, "fixed", "sliced", "commit")
    (victim,) = segments(path)
    zero(victim, 1, 1)
    rotten = victim.read_bytes()

    def find_it_and_add() -> None:
        store = bloomstore.open(path)
        store["users"].add_many(range(300_000, 301_000))  # rows that touch every block

    in_a_process_that_is_killed(find_it_and_add)
    victim.write_bytes(rotten)
    for read_only in (True, False, True):
        with bloomstore.open(path, read_only=read_only) as store:
            assert store["users"].may_contain_many(MANY).all()
            if not read_only:
                assert store["users"].may_contain_many(range(300_000, 301_000)).all()
                assert_error_is_told(store["users"])


def test_a_full_block_of_ones_does_not_fill_the_stage(path: Path) -> None:
    with bloomstore.open(path) as store:
        spec = Fixed(capacity=200_000, target_error=0.02, layout="plain")
        store.create("users", spec).add_many(range(100_000))
    zero(segments(path)[0], 0, 1)
    with bloomstore.open(path) as store:
        users = store["users"]
        users.add_many(range(100_000, 195_000))
        assert users.may_contain_many(range(195_000)).all()
        with pytest.raises(FilterFull):
            users.add_many(range(200_000, 240_000))


ASK = """
import sys, bloomstore
"somebody" in bloomstore.open(sys.argv[1])["users"]
"""


@pytest.mark.parametrize("point", ["generation: committed", "generation: word set"])
@pytest.mark.parametrize("durability", ["commit", "process"])
def test_a_crash_before_recorded_damage_is_set_to_ones_loses_nothing(
    path: Path, durability: Durability, point: str
) -> None:
    make_large(path, "fixed", "blocked", durability)
    zero(segments(path)[0], 1, 1)
    environment = os.environ | {"BLOOMSTORE_CRASH_AT": point}
    died = subprocess.run([sys.executable, "-c", ASK, path], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL
    for read_only in (True, False):
        with bloomstore.open(path, read_only=read_only) as store:
            users = store["users"]
            assert users.may_contain_many(MANY).all()
            assert "damaged blocks [1]" in str(users.state)
            assert_error_is_told(users)
