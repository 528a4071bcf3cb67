"""A filter that becomes a copy of another store's filter: the same bits, proved, or nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Dynamic, FilterSpec, Fixed, Flexible, Scalable, Sequence
from bloomstore.cli.main import main
from bloomstore.errors import NotCopyable, SpecError
from bloomstore.rebuild import SourceError, TextSource, copy_filter, give_up, rebuild
from bloomstore.rebuild.state import read_state
from bloomstore.segment.header import HEADER_BYTES
from bloomstore.store.durable import trust
from bloomstore.store.write.copying import begin_copy
from tests.support.checkout import environment

KEYS = [f"key {number}" for number in range(3000)]
ABSENT = [f"absent {number}" for number in range(20_000)]
SPECS: list[FilterSpec] = [
    Scalable(target_error=1e-2, initial_capacity=500),
    Dynamic(target_error=1e-2, capacity=700),
    Fixed(target_error=1e-2, capacity=3000),
    Flexible(baseline_bits=1 << 12, hashes=5, error=1e-3, expansion=Sequence([1, 2, 3])),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[bloomstore.Store]:
    """Has a filter with one key of its own."""
    with bloomstore.open(tmp_path / "filters") as store:
        store.create("seen", Scalable(target_error=1e-3)).add("old")
        yield store
        assert [str(problem) for problem in store.check()] == []


@pytest.fixture
def other(tmp_path: Path) -> Iterator[bloomstore.Store]:
    with bloomstore.open(tmp_path / "other") as store:
        yield store


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_the_copy_is_what_the_other_filter_is(
    store: bloomstore.Store, other: bloomstore.Store, spec: FilterSpec, durability: str
) -> None:
    theirs = other.create("theirs", spec, durability=durability)  # type: ignore[arg-type]
    theirs.add_many(KEYS)
    done = copy_filter(store, "seen", other, "theirs")
    ours = store["seen"]
    assert (done.keys, done.still) == (theirs.stats().keys, "")
    assert ours.may_contain_many(KEYS).all()
    assert (ours.may_contain_many(ABSENT) == theirs.may_contain_many(ABSENT)).all()
    assert "old" not in ours
    mine, wanted = ours.stats(), theirs.stats()
    assert (mine.spec, mine.keys, mine.bits) == (wanted.spec, wanted.keys, wanted.bits)
    assert [stage.fill for stage in mine.stages] == [stage.fill for stage in wanted.stages]
    if not isinstance(spec, Fixed):  # both go on growing, the same way
        ours.add_many(ABSENT[:2000])
        theirs.add_many(ABSENT[:2000])
        assert ours.stats().bits == theirs.stats().bits
        assert ours.may_contain_many([*KEYS, *ABSENT[:2000]]).all()


def test_it_is_there_after_reopening_and_a_rebuild_that_was_cut_off_is_forgotten(
    other: bloomstore.Store, tmp_path: Path
) -> None:
    other.create("seen", SPECS[0]).add_many(KEYS)
    keys = tmp_path / "keys.txt"
    keys.write_text("text\n")
    with bloomstore.open(tmp_path / "filters") as store:
        store.create("seen", SPECS[0])
        with pytest.raises(ZeroDivisionError):
            rebuild(store, "seen", TextSource(keys), progress=lambda rows: 1 // (1 - rows))
        assert read_state(store, "seen") is not None
        copy_filter(store, "seen", other)
        assert read_state(store, "seen") is None
        assert not give_up(store, "seen")
    with bloomstore.open(tmp_path / "filters", read_only=True) as store:
        assert store["seen"].may_contain_many(KEYS).all()
        assert list(store.check()) == []


def test_writers_add_to_both_until_the_switch(
    store: bloomstore.Store, other: bloomstore.Store
) -> None:
    other.create("theirs", SPECS[0]).add_many(KEYS)
    new = begin_copy(store, "seen", other, "theirs")
    assert "old" in store["seen"]
    store["seen"].add_many(ABSENT[:1000])  # more than the newest stage takes
    new.switch()
    assert store["seen"].may_contain_many([*KEYS, *ABSENT[:1000]]).all()


def test_what_cannot_be_trusted_is_refused_and_nothing_changes(
    store: bloomstore.Store, other: bloomstore.Store
) -> None:
    other.create("fenced", SPECS[0]).fence("for the test")
    with pytest.raises(NotCopyable, match=r"'fenced' of .*other cannot be copied: fenced: for the"):
        copy_filter(store, "seen", other, "fenced")
    other.create("seed", Scalable(target_error=1e-2, seed=7))
    with pytest.raises(SpecError, match="keeps the seed"):
        copy_filter(store, "seen", other, "seed")
    with pytest.raises(SourceError, match="cannot be copied from itself"):
        copy_filter(store, "seen", store)
    store.notes["guard/seen"] = b"{}"
    with pytest.raises(SourceError, match="is the filter of a guard"):
        copy_filter(store, "seen", other, "seed")
    del store.notes["guard/seen"]
    assert "old" in store["seen"]
    assert len(store["seen"].stats().stages) == 1


@pytest.mark.parametrize(
    ("stage", "looked_at"),
    [(0, 1 << 26), (-1, 1 << 26), (-1, 0)],
    ids=["sealed", "newest", "newest, too large to be looked at by its first use"],
)
def test_a_damaged_block_is_not_copied(
    store: bloomstore.Store,
    tmp_path: Path,
    stage: int,
    looked_at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trust, "READ_WHOLE_BYTES", looked_at)
    with bloomstore.open(tmp_path / "damaged") as other:
        other.create("theirs", SPECS[0]).add_many(KEYS)
        other.checkpoint()
    files = sorted((tmp_path / "damaged" / "segments").iterdir(), key=lambda file: file.name)
    with files[stage].open("r+b") as file:
        file.seek(HEADER_BYTES + 100)
        byte = file.read(1)[0]
        file.seek(HEADER_BYTES + 100)
        file.write(bytes([byte ^ 0x11]))
    with (
        bloomstore.open(tmp_path / "damaged", read_only=True) as other,
        pytest.raises(NotCopyable, match="damaged blocks"),
    ):
        copy_filter(store, "seen", other, "theirs")
    assert "old" in store["seen"]
    assert "key 1" not in store["seen"]


@pytest.mark.parametrize(
    "point",
    [
        "new file: tombstone committed#3",
        "new file: synced#2",
        "generation: committed#4",
        "drop: file unlinked",
    ],
)
def test_killed_it_has_changed_nothing_and_can_be_given_up_or_done_again(
    tmp_path: Path, point: str
) -> None:
    ours, theirs = tmp_path / "filters", tmp_path / "other"
    with bloomstore.open(theirs) as other, bloomstore.open(ours) as store:
        other.create("grown", SPECS[0]).add_many(KEYS)
        store.create("seen", Scalable(target_error=1e-3)).add("old")
    command = [sys.executable, "-m", "bloomstore", "rebuild", str(ours), "seen"]
    command += ["--from", str(theirs), "--filter", "grown"]
    variables = environment(BLOOMSTORE_CRASH_AT=point)
    killed = subprocess.run(command, env=variables, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, f"it never came to {point!r}"
    with bloomstore.open(ours) as store:
        store["seen"].add("after the kill")
        assert "old" in store["seen"]
        assert give_up(store, "seen")
        assert not give_up(store, "seen")
        assert list(store.check()) == []
    variables.pop("BLOOMSTORE_CRASH_AT")
    assert subprocess.run(command, env=variables, check=False).returncode == 0
    with bloomstore.open(ours) as store:
        assert store["seen"].may_contain_many(KEYS).all()
        assert list(store.check()) == []


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = tmp_path / "filters", tmp_path / "other"
    with bloomstore.open(theirs) as other, bloomstore.open(ours) as store:
        other.create("theirs", SPECS[0]).add_many(KEYS)
        store.create("seen", Scalable(target_error=1e-3))
        store.create("again", Scalable(target_error=1e-3))
    command = ["rebuild", str(ours), "seen", "--from", str(theirs)]
    assert main([*command, "--filter", "theirs", "--dry-run"]) == 0
    assert "stages" in capsys.readouterr().out
    assert main([*command, "--filter", "theirs"]) == 0
    assert "rebuilt seen" in capsys.readouterr().out
    assert main(["rebuild", str(ours), "again", "--from", str(ours), "--filter", "seen"]) == 0
    with bloomstore.open(ours) as store:
        assert store["seen"].may_contain_many(KEYS).all()
        assert store["again"].may_contain_many(KEYS).all()
    for more, error in (
        ([], "seen"),
        (["--filter", "theirs", "--capacity", "10"], "--capacity does not go together with a st"),
        (["--filter", "theirs", "--target-error", "0.1"], "--target-error does not go together"),
        (["--filter", "theirs", "--column", "x"], "--column does not go together with a store"),
    ):
        capsys.readouterr()
        assert main([*command, *more]) == 2
        assert error in capsys.readouterr().err
    assert main(["verify", str(ours), "seen", "--from", str(theirs)]) == 2
    assert "the keys of a store cannot be listed" in capsys.readouterr().err
    assert main(["rebuild", str(ours), "seen", "--from", "keys.txt", "--filter", "x"]) == 2
    assert "keys.txt is not the folder of a store" in capsys.readouterr().err
