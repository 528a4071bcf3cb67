"""Blocks that keys were added to since the last checkpoint have no checksum, and are not trusted
once anything says that their stage was damaged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore import Fixed
from bloomstore.catalog.rows import Durability
from bloomstore.segment.header import BLOCK_BYTES, HEADER_BYTES, PAGE_BYTES
from bloomstore.segment.segment import read_header
from bloomstore.store.durable import trust
from tests.faults.damage import in_a_process_that_is_killed

KEYS = np.arange(300_000)
DURABILITIES: list[Durability] = ["commit", "process"]


def make(path: Path, durability: Durability) -> tuple[Path, int]:
    """A store that was killed after one late key; its segment, and the block of that key."""
    with bloomstore.open(path) as store:
        spec = Fixed(capacity=400_000, target_error=0.01, layout="blocked")
        store.create("users", spec, durability=durability).add_many(KEYS)
    (victim,) = (path / "segments").iterdir()
    before = victim.read_bytes()[:-PAGE_BYTES]
    in_a_process_that_is_killed(lambda: bloomstore.open(path)["users"].add("late"))
    after = victim.read_bytes()[:-PAGE_BYTES]
    blocks = range(read_header(victim).blocks)
    (changed,) = (block for block in blocks if piece(before, block) != piece(after, block))
    return victim, changed


def piece(content: bytes, block: int) -> bytes:
    start = HEADER_BYTES + block * BLOCK_BYTES
    return content[start : start + BLOCK_BYTES]


def zero_between(victim: Path, changed: int) -> list[int]:
    """Zeroes a run over the end of one block and the beginning of the next, one of them changed."""
    second = changed or 1
    with victim.open("r+b") as file:
        file.seek(HEADER_BYTES + second * BLOCK_BYTES - 4096)
        file.write(bytes(8192))
    return [second - 1, second]


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("read_only", [True, False], ids=["reader", "writer"])
def test_a_run_of_zeros_over_a_changed_block_and_another_one_loses_no_key(
    path: Path, durability: Durability, read_only: bool
) -> None:
    blocks = zero_between(*make(path, durability))
    for _ in range(2):
        with bloomstore.open(path, read_only=read_only) as store:
            users = store["users"]
            assert users.may_contain_many(KEYS).all()
            assert "late" in users
            assert f"damaged blocks {blocks}" in str(users.state)
            assert len(list(store.check())) >= 2
    with bloomstore.open(path) as store:
        list(store.repair())
        assert store["users"].may_contain_many(KEYS).all()


@pytest.mark.parametrize("durability", DURABILITIES)
def test_so_it_is_when_the_damage_is_found_block_by_block(
    path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the stage was being changed at its first use and could not be examined."""
    blocks = zero_between(*make(path, durability))
    monkeypatch.setattr(trust, "examine", lambda *_: None)
    with bloomstore.open(path) as store:
        users = store["users"]
        monkeypatch.undo()
        users.may_contain_many(KEYS)
        assert users.may_contain_many(KEYS).all()
        assert f"damaged blocks {blocks}" in str(users.state)
    with bloomstore.open(path) as store:
        assert store["users"].may_contain_many(KEYS).all()
