"""A rebuild replaces a filter by one well-sized stage, or changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomstore
from bloomstore import Dynamic, Fixed, Scalable
from bloomstore.errors import SpecError, StoreFailed
from bloomstore.rebuild import Incomplete, RebuildError, SourceError, give_up, order, rebuild
from bloomstore.rebuild.state import read_state
from bloomstore.store.durable import checkpoint
from bloomstore.store.write.coming_chain import Rebuild
from tests.rebuild.sources import Listed, Stop, make_file, make_source

KEYS = [f"key {number}" for number in range(2000)]


@pytest.fixture
def grown(store: bloomstore.Store) -> bloomstore.Filter:
    """A filter of several stages, half of whose keys the source does not have any more."""
    made = store.create("seen", Scalable(target_error=1e-3, initial_capacity=100))
    made.add_many(KEYS)
    made.add_many(f"deleted {number}" for number in range(2000))
    return made


def answers(filter_: bloomstore.Filter) -> list[bool]:
    asked = [*KEYS, *(f"deleted {number}" for number in range(2000))]
    return filter_.may_contain_many(asked).tolist()


def test_one_stage_for_the_keys_of_the_source(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    seen: list[int] = []
    done = rebuild(store, "seen", Listed(KEYS), progress=seen.append)
    assert (done.rows, done.resumed_at, done.still) == (2000, 0, "")
    assert grown.may_contain_many(KEYS).all()
    assert np.count_nonzero(answers(grown)[2000:]) < 20
    assert len(grown.stats().stages) == 1
    assert grown.spec == Scalable(target_error=1e-3, initial_capacity=2200, layout="sliced")
    assert seen == list(range(0, 2001, 100))
    assert dict(store.notes) == {}


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (Fixed(capacity=10, target_error=0.01), Fixed(capacity=50, target_error=0.1)),
        (Dynamic(capacity=10, target_error=0.01), Dynamic(capacity=50, target_error=0.1)),
        (Scalable(target_error=0.01), Scalable(target_error=0.1, initial_capacity=50)),
    ],
)
def test_capacity_and_error_may_be_chosen(
    store: bloomstore.Store, family: Any, expected: Any
) -> None:
    made = store.create("seen", family)
    rebuild(store, "seen", Listed(KEYS[:30]), capacity=50, target_error=0.1)
    spec: Any = made.spec
    assert replace(spec, layout=None) == expected
    with pytest.raises(SpecError, match="either"):
        rebuild(store, "seen", Listed(KEYS), spec=expected, capacity=3)


@pytest.mark.parametrize(
    "spec",
    [
        Fixed(capacity=100, target_error=0.01),
        Dynamic(capacity=100, target_error=0.01),
        Scalable(target_error=0.01, initial_capacity=100),
    ],
)
@pytest.mark.parametrize("count", [50, 500])
def test_a_program_that_ensures_its_filter_takes_the_rebuilt_one(
    store: bloomstore.Store, spec: Any, count: int
) -> None:
    store.ensure("seen", spec).add_many(KEYS[:50])
    rebuild(store, "seen", Listed(KEYS[:count]))
    store.ensure("seen", spec).add_many(KEYS[count : count + 40])  # a fixed one keeps its room
    assert store["seen"].may_contain_many(KEYS[: count + 40]).all()
    with pytest.raises(SpecError, match="exists as"):
        store.ensure("seen", replace(spec, target_error=0.02))


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ([], "a list has no keys, filter 'seen' has 3,"),
        (list(range(2000)), "of 2,000 keys of a list [0-9] are known, filter 'seen' has 3,"),
        (["other"], "of 1 keys of a list 0 are known"),
    ],
)
def test_a_source_of_something_else_is_refused_unless_it_is_meant(
    store: bloomstore.Store, grown: bloomstore.Filter, keys: list[Any], complaint: str
) -> None:
    before = answers(grown)
    for _ in range(2):  # what was read is kept, and so is the doubt
        with pytest.raises(RebuildError, match=complaint):
            rebuild(store, "seen", Listed(keys))
        assert answers(grown) == before
    done = rebuild(store, "seen", Listed(keys), other_keys=True)
    assert (done.rows, done.resumed_at) == (len(keys), len(keys))
    assert grown.may_contain_many(keys).all()
    assert np.count_nonzero(answers(grown)) < 40


def test_a_few_keys_of_the_filter_are_enough_to_know_its_source(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    rebuild(store, "seen", Listed([*range(900), *KEYS[:100]]))
    rebuild(store, "seen", Listed(["new", KEYS[0]]))
    assert KEYS[0] in grown
    assert KEYS[1] not in grown


def test_keys_added_meanwhile_are_in_the_new_filter(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    rebuild(store, "seen", Listed(KEYS), progress=lambda rows: grown.add(f"during {rows}"))
    assert grown.may_contain_many([f"during {rows}" for rows in range(0, 2001, 100)]).all()


@pytest.mark.parametrize("error", [Incomplete("half of it"), SourceError("gone"), Stop()])
def test_a_source_that_ends_early_switches_nothing(
    store: bloomstore.Store, grown: bloomstore.Filter, error: Exception
) -> None:
    before = answers(grown)
    with pytest.raises(type(error)):
        rebuild(store, "seen", Listed(KEYS, ends_at=700, error=error))
    assert answers(grown) == before
    state = read_state(store, "seen")
    if isinstance(error, Incomplete):  # nothing may be built from it
        assert state is None
    else:
        assert state is not None
        assert (state.position, state.rows) == (700, 700)


def test_a_source_that_changed_meanwhile_switches_nothing(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    before, source = answers(grown), Listed(KEYS)

    def change(rows: int) -> None:
        source.state = rows

    with pytest.raises(Incomplete, match="the source has changed: state is 2000, was 0"):
        rebuild(store, "seen", source, progress=change)
    assert answers(grown) == before
    assert read_state(store, "seen") is None


def test_a_key_that_the_new_chain_lost_is_noticed(
    store: bloomstore.Store, grown: bloomstore.Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(grown)
    monkeypatch.setattr("bloomstore.store.write.writer.add_to_chain", lambda *_: 0)
    with pytest.raises(StoreFailed, match="lost a key"):
        rebuild(store, "seen", Listed(KEYS))
    monkeypatch.undo()
    assert answers(grown) == before


def test_a_damaged_block_of_the_new_chain_is_not_switched_to(
    store: bloomstore.Store, grown: bloomstore.Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = answers(grown), Rebuild._prove
    every_filter = checkpoint.every_filter

    def damaged(self: Rebuild, core: Any) -> None:
        every_filter(core)
        with core.catalog.write() as change:
            stage = change.stage_rows(self._number, self._chain)[0]
            sums = change.checksums(stage.number, stage.header(core.store_id).blocks)
            change.put_checksums(stage.number, sums ^ np.uint32(1))
        real(self, core)

    monkeypatch.setattr("bloomstore.store.durable.checkpoint.every_filter", lambda core: None)
    monkeypatch.setattr(Rebuild, "_prove", damaged)
    with pytest.raises(StoreFailed, match=r"S0.*does not fit its checksums"):
        rebuild(store, "seen", Listed(KEYS))
    monkeypatch.undo()
    assert answers(grown) == before
    assert give_up(store, "seen")


def test_what_was_cut_off_goes_on_and_keys_between_are_kept(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    with pytest.raises(Stop):
        rebuild(store, "seen", Listed(KEYS, ends_at=700, error=Stop()))
    grown.add("between the attempts")
    read: list[int] = []
    done = rebuild(store, "seen", Listed(KEYS), progress=read.append)
    assert (done.rows, done.resumed_at, read[0]) == (2000, 700, 700)
    assert grown.may_contain_many([*KEYS, "between the attempts"]).all()
    assert np.count_nonzero(answers(grown)[2000:]) < 20


def test_another_source_or_spec_is_refused_until_it_is_restarted(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    with pytest.raises(Stop):
        rebuild(store, "seen", Listed(KEYS, ends_at=700, error=Stop()))
    with pytest.raises(RebuildError, match="another source: keys is 1999, was 2000"):
        rebuild(store, "seen", Listed(KEYS[1:]))
    with pytest.raises(RebuildError, match=r"another spec: target_error is 0\.1, was None"):
        rebuild(store, "seen", Listed(KEYS), target_error=0.1)
    done = rebuild(store, "seen", Listed(KEYS[1:]), restart=True)
    assert (done.rows, done.resumed_at) == (1999, 0)


def test_cut_off_behind_the_switch_a_source_that_may_have_changed_is_read_again(
    store: bloomstore.Store, grown: bloomstore.Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise Stop  # right behind the switch, as if killed there

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(order, "_end", end)
        rebuild(store, "seen", Listed(KEYS))
    later = ["later", *KEYS[1:]]  # as many keys: the source cannot tell
    done = rebuild(store, "seen", Listed(later))
    assert (done.rows, done.resumed_at) == (2000, 0)
    assert "it had ended" in done.began_again
    assert grown.may_contain_many(later).all()
    assert rebuild(store, "seen", Listed(later)).began_again == ""


def test_two_rebuilds_of_one_filter_at_once_are_refused_and_of_two_are_not(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    other = store.create("other", Scalable(target_error=1e-3))
    refused: list[str] = []

    def at_once(rows: int) -> None:
        if rows == 2000:
            for attempt in (
                lambda: rebuild(store, "seen", Listed(KEYS)),
                lambda: give_up(store, "seen"),
            ):
                with pytest.raises(RebuildError, match="is being rebuilt") as error:
                    attempt()
                refused.append(str(error.value))
            rebuild(store, "other", Listed(KEYS))

    done = rebuild(store, "seen", Listed(KEYS), progress=at_once)
    assert (done.rows, len(refused) > 0) == (2000, True)
    assert grown.may_contain_many(KEYS).all()
    assert other.may_contain_many(KEYS).all()


def test_giving_up_discards_what_was_cut_off(
    store: bloomstore.Store, grown: bloomstore.Filter, path: Path
) -> None:
    before, files = answers(grown), len(list((path / "segments").iterdir()))
    with pytest.raises(Stop):
        rebuild(store, "seen", Listed(KEYS, ends_at=700, error=Stop()))
    assert give_up(store, "seen")
    assert not give_up(store, "seen")
    assert (answers(grown), len(list((path / "segments").iterdir()))) == (before, files)


def test_a_dropped_filter_takes_its_rebuild_along(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    with pytest.raises(Stop):
        rebuild(store, "seen", Listed(KEYS, ends_at=700, error=Stop()))
    store.drop("seen")
    again = store.create("seen", Scalable(target_error=1e-3))
    done = rebuild(store, "seen", Listed(KEYS))
    assert (done.resumed_at, done.began_again) == (0, "its chain is gone or damaged")
    assert again.may_contain_many(KEYS).all()


def test_a_copy_of_the_store_does_not_go_on_with_a_rebuild(
    store: bloomstore.Store, grown: bloomstore.Filter, tmp_path: Path
) -> None:
    """Writers of the original have added keys since that the copy does not know."""
    with pytest.raises(Stop):
        rebuild(store, "seen", Listed(KEYS, ends_at=700, error=Stop()))
    store.backup(tmp_path / "copy")
    with bloomstore.open(tmp_path / "copy") as copy:
        assert rebuild(copy, "seen", Listed(KEYS)).resumed_at == 0


def test_fences_of_others_stay(store: bloomstore.Store, grown: bloomstore.Filter) -> None:
    token = grown.fence("somebody knows why")
    assert rebuild(store, "seen", Listed(KEYS)).still == "fenced: somebody knows why"
    grown.unfence(token)
    assert "nobody" not in grown


@pytest.mark.parametrize("durability", ["commit", "process"])
def test_a_damaged_filter_is_cured(path: Path, tmp_path: Path, durability: Any) -> None:
    with bloomstore.open(path) as store:
        store.create("seen", Fixed(capacity=2000, target_error=1e-3), durability=durability)
        store["seen"].add_many(KEYS)
    next((path / "segments").iterdir()).unlink()
    with bloomstore.open(path) as store:
        assert store["seen"].state.name == "damaged"
        done = rebuild(store, "seen", make_source(make_file(tmp_path, "txt", KEYS)))
        assert done.still == ""
        assert store["seen"].may_contain_many(KEYS).all()
        assert "nobody" not in store["seen"]


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are so many from here on that they are gathered in memory."""
    monkeypatch.setattr("bloomstore.store.write.bulk_load.LEAST_KEYS", 250)


@pytest.mark.usefixtures("gathered")
@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize(("capacity", "stages"), [(2200, 1), (300, 3)])
def test_many_keys_are_gathered_with_those_of_writers(
    store: bloomstore.Store, durability: Any, capacity: int, stages: int
) -> None:
    seen = store.create("seen", Scalable(target_error=1e-3), durability=durability)
    noted: set[int] = set()

    def write(rows: int) -> None:
        seen.add(f"during {rows}")
        state = read_state(store, "seen")
        noted.add(0 if state is None else state.rows)

    done = rebuild(store, "seen", Listed(KEYS), capacity=capacity, progress=write)
    assert done.rows == 2000
    assert 1990 <= done.keys <= 2000
    assert seen.may_contain_many([*KEYS, *(f"during {n}" for n in range(0, 2001, 100))]).all()
    stats = seen.stats()
    assert len(stats.stages) == stages
    assert 2010 <= stats.keys <= 2021
    assert stats.error_rate <= 1e-3
    assert noted >= {0, 300} if capacity == 2200 else len(noted) > 3
    store.checkpoint()
    assert [str(problem) for problem in store.check()] == []


@pytest.mark.usefixtures("gathered")
def test_writers_that_outgrow_the_new_chain_make_it_read_again(
    store: bloomstore.Store, grown: bloomstore.Filter
) -> None:
    floods = [[f"flood {number}" for number in range(9000)]]
    read: list[int] = []

    def flood(rows: int) -> None:
        read.append(rows)
        if rows == 800 and floods:
            grown.add_many(floods.pop())

    done = rebuild(store, "seen", Listed(KEYS), progress=flood)
    assert read.count(800) == 2
    assert done.rows == 2000
    assert grown.may_contain_many([*KEYS, *(f"flood {number}" for number in range(9000))]).all()


@pytest.mark.usefixtures("gathered")
def test_a_gathered_key_that_was_lost_is_noticed(
    store: bloomstore.Store, grown: bloomstore.Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(grown)
    nothing = np.zeros(100, np.bool_)
    monkeypatch.setattr("bloomstore.kernels.insert", lambda *_: (100, nothing, 0))
    with pytest.raises(StoreFailed, match="lost a key"):
        rebuild(store, "seen", Listed(KEYS))
    monkeypatch.undo()
    assert answers(grown) == before


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("count", [*range(590, 640, 7), 1500, 4001])
def test_gathered_keys_are_all_there_wherever_a_stage_gets_full(
    store: bloomstore.Store, monkeypatch: pytest.MonkeyPatch, count: int, durability: Any
) -> None:
    """Also in the last batch, whose rest goes into a stage that is not full."""
    monkeypatch.setattr("bloomstore.store.write.bulk_load.LEAST_KEYS", 300)
    gathered = store.create("gathered", Fixed(capacity=9, target_error=0.1), durability=durability)
    keys = [f"key {number}" for number in range(count)]
    spec = Scalable(target_error=0.001, initial_capacity=600)
    result = rebuild(store, "gathered", Listed(keys), spec=spec)
    assert result.rows == count
    assert gathered.may_contain_many(keys).all()
    assert len(gathered.stats().stages) > (count > 700)
    assert list(store.check()) == []


def test_a_source_that_was_emptied_leaves_room_for_what_was_declared(
    store: bloomstore.Store, tmp_path: Path
) -> None:
    spec = Scalable(target_error=0.01, initial_capacity=10_000, layout="sliced")
    seen = store.create("seen", spec)
    many = [f"key {number}" for number in range(30_000)]
    seen.add_many(many)
    rebuild(store, "seen", Listed(many))
    assert seen.spec == replace(spec, initial_capacity=33_000)
    for _ in range(2):  # what the first one has chosen is not what was declared
        rebuild(store, "seen", make_source(make_file(tmp_path, "txt", [])), other_keys=True)
        assert seen.spec == spec
    seen.add_many(many[:10_000])
    stats = seen.stats()
    assert len(stats.stages) <= 2
    assert stats.bits_per_key is not None
    assert stats.bits_per_key < 45  # the second stage has hardly begun


def test_a_source_that_got_smaller_makes_a_smaller_filter(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=0.01, initial_capacity=100))
    rebuild(store, "seen", Listed(KEYS))
    assert seen.stats().stages[0].capacity == 2200
    rebuild(store, "seen", Listed(KEYS[:200]))
    assert seen.stats().stages[0].capacity < 230


def test_a_capacity_that_was_asked_for_is_what_is_declared(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=0.01, initial_capacity=100))
    rebuild(store, "seen", Listed(KEYS), capacity=5000)
    rebuild(store, "seen", Listed(KEYS[:1]))
    assert seen.stats().stages[0].capacity == 5000
