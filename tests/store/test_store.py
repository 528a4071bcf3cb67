"""Opening, naming, dropping, notes, fences, batches; what is refused, and changes nothing."""

from __future__ import annotations

import collections.abc as abc
import stat
from pathlib import Path
from typing import Any, cast

import pytest

import bloomstore
from bloomstore import Dynamic, Fixed, Flexible, Scalable, Sequence
from bloomstore.errors import (
    BatchError,
    FilterExists,
    FilterNotFound,
    NotAStore,
    SpecError,
    StoreClosed,
    StoreNotFound,
    StoreReadOnly,
)

SPEC = Scalable(target_error=0.01, initial_capacity=100)


def fingerprint_of(folder: Path) -> dict[str, bytes]:
    """Every byte of a store but LMDB's reader table."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock.mdb"
    }


def test_a_store_is_private_to_its_owner(store: bloomstore.Store, path: Path) -> None:
    store.create("seen", SPEC)
    for found in [path, *path.rglob("*")]:
        expected = 0o700 if found.is_dir() else 0o600
        assert stat.S_IMODE(found.stat().st_mode) == expected, found


def test_filters_are_listed_by_name(store: bloomstore.Store) -> None:
    for name in ("b", "a", "ä"):
        store.create(name, SPEC)
    assert list(store) == ["a", "b", "ä"]
    assert len(store) == 3
    assert "a" in store
    assert "c" not in store


def test_a_second_handle_is_the_same_object(store: bloomstore.Store) -> None:
    assert store.create("seen", SPEC) is store["seen"]


def test_a_second_open_in_one_process_is_the_same_store(
    store: bloomstore.Store, path: Path
) -> None:
    with bloomstore.open(path) as again:
        assert again is store
    assert len(store) == 0  # still open
    with pytest.raises(SpecError, match="already open in this process"):
        bloomstore.open(path, read_only=True)


def test_creating_over_an_existing_filter_never_empties_it(store: bloomstore.Store) -> None:
    store.create("seen", SPEC).add("alice")
    with pytest.raises(FilterExists) as caught:
        store.create("seen", SPEC)
    assert caught.value.name == "seen"
    assert "alice" in store["seen"]


def test_ensure_takes_an_equal_filter_and_refuses_another(store: bloomstore.Store) -> None:
    made = store.ensure("seen", SPEC)
    assert store.ensure("seen", SPEC) is made
    with pytest.raises(SpecError, match="exists as"):
        store.ensure("seen", Scalable(target_error=0.02, initial_capacity=100))
    with pytest.raises(SpecError, match="durability"):
        store.ensure("seen", SPEC, durability="process")


def test_a_missing_filter_is_a_key_error_that_names_it(store: bloomstore.Store) -> None:
    with pytest.raises(KeyError, match="no filter named 'nobody'"):
        store["nobody"]
    with pytest.raises(FilterNotFound):
        store.drop("nobody")


def test_a_dropped_filter_is_gone_with_its_files(store: bloomstore.Store, path: Path) -> None:
    seen = store.create("seen", SPEC)
    seen.add_many(range(1000))
    store.drop("seen")
    assert list(store) == []
    assert list((path / "segments").iterdir()) == []
    with pytest.raises(FilterNotFound):
        "alice" in seen  # noqa: B015
    with pytest.raises(FilterNotFound):
        seen.add("alice")
    fresh = store.create("seen", SPEC)
    assert 5 not in fresh
    with pytest.raises(FilterNotFound):
        seen.may_contain_many([1])


def test_everything_raises_after_close(path: Path) -> None:
    store = bloomstore.open(path)
    seen = store.create("seen", SPEC)
    store.close()
    store.close()
    calls: list[abc.Callable[[], object]] = [
        lambda: "a" in seen,
        lambda: seen.add("a"),
        lambda: seen.add_many(["a"]),
        lambda: seen.may_contain_many(["a"]),
        lambda: seen.stats(),
        lambda: seen.state,
        lambda: store["seen"],
        lambda: store.create("b", SPEC),
        lambda: list(store),
        lambda: store.checkpoint(),
        lambda: list(store.check()),
        lambda: store.batch().__enter__(),
        lambda: store.notes["a"],
    ]
    for call in calls:
        with pytest.raises(StoreClosed, match=r"store is closed|is closed"):
            call()


def test_a_read_only_store_answers_and_refuses_every_change(path: Path) -> None:
    with bloomstore.open(path) as store:
        store.create("seen", SPEC).add("alice")
    before = fingerprint_of(path)
    with bloomstore.open(path, read_only=True) as store:
        seen = store["seen"]
        assert "alice" in seen
        assert "bob" not in seen
        calls: list[abc.Callable[[], object]] = [
            lambda: seen.add("bob"),
            lambda: seen.add("alice"),
            lambda: seen.add_many(["bob"]),
            lambda: seen.fence("why"),
            lambda: store.create("b", SPEC),
            lambda: store.ensure("b", SPEC),
            lambda: store.drop("seen"),
            lambda: store.checkpoint(),
            lambda: store.batch().__enter__(),
            lambda: store.notes.__setitem__("a", b"b"),
        ]
        for call in calls:
            with pytest.raises(StoreReadOnly, match="opened read-only"):
                call()
    assert fingerprint_of(path) == before


def test_opening_for_reading_never_makes_a_store(path: Path) -> None:
    with pytest.raises(StoreNotFound, match=str(path)):
        bloomstore.open(path, read_only=True)
    with pytest.raises(StoreNotFound):
        bloomstore.open(path, create=False)
    assert not path.exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotAStore, match=r"letter\.txt"):
        bloomstore.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    with pytest.raises(NotAStore, match="it is a file"):
        bloomstore.open(tmp_path / "letter.txt")


@pytest.mark.parametrize("name", ["", "x" * 401, "\ud800", 7, None, b"seen"])
def test_impossible_names_are_refused(store: bloomstore.Store, name: object) -> None:
    with pytest.raises(SpecError, match="a filter's name"):
        store.create(name, SPEC)  # type: ignore[arg-type]
    with (
        pytest.raises(SpecError, match="a filter's name"),
        store.rebuild(name),  # type: ignore[arg-type]
    ):
        pass
    assert list(store) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", ".", "a\nb", "日本", "x" * 400])
def test_names_never_become_paths(store: bloomstore.Store, path: Path, name: str) -> None:
    store.create(name, SPEC).add("alice")
    assert list(store) == [name]
    files = [found.name for found in (path / "segments").iterdir()]
    assert files == ["F1.C0.S0.N2.seg"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(capacity=0, target_error=0.1), "capacity must be in 1"),
        (
            lambda: Fixed(capacity=cast("Any", 1.5), target_error=0.1),
            "capacity must be a whole number",
        ),
        (lambda: Fixed(capacity=True, target_error=0.1), "capacity must be a whole number"),
        (lambda: Fixed(capacity=10, target_error=0), "target_error must be in"),
        (lambda: Fixed(capacity=10, target_error=1.0), "target_error must be in"),
        (lambda: Fixed(capacity=10, target_error=float("nan")), "target_error must be in"),
        (
            lambda: Fixed(capacity=10, target_error=cast("Any", "a")),
            "target_error must be a number",
        ),
        (
            lambda: Fixed(capacity=10, target_error=0.1, layout=cast("Any", "round")),
            "layout must be one of",
        ),
        (
            lambda: Fixed(capacity=10, target_error=0.1, scheme=cast("Any", "md5")),
            "scheme must be one of",
        ),
        (lambda: Fixed(capacity=10, target_error=0.1, seed=-1), "seed must be an int"),
        (
            lambda: Fixed(capacity=10, target_error=0.1, layout="blocked", scheme="h3"),
            "layout 'blocked' takes hash scheme 'spread'",
        ),
        (lambda: Scalable(target_error=0.1, growth=0.5), "growth must be in"),
        (lambda: Scalable(target_error=0.1, growth=float("nan")), "growth must be in"),
        (lambda: Scalable(target_error=0.1, tightening=1.0), "tightening must be in"),
        (lambda: Scalable(target_error=0.1, initial_capacity=-5), "initial_capacity must be in"),
        (lambda: Dynamic(capacity=1 << 62, target_error=0.1), "capacity must be in"),
        (lambda: Flexible(baseline_bits=1000, hashes=4, capacity=5), "a power of two"),
        (lambda: Flexible(baseline_bits=1024, hashes=0, capacity=5), "hashes must be in"),
        (lambda: Flexible(baseline_bits=1024, hashes=65, capacity=5), "hashes must be in 1..64"),
        (lambda: Flexible(baseline_bits=1024, hashes=4), "exactly one of capacity= and error="),
        (
            lambda: Flexible(baseline_bits=1024, hashes=4, capacity=5, error=0.1),
            "exactly one of capacity= and error=",
        ),
        (
            lambda: Flexible(baseline_bits=1024, hashes=4, capacity=5, expansion=cast("Any", [1])),
            "expansion must be",
        ),
        (lambda: Sequence([]), "at least one element"),
        (lambda: Sequence([0]), "an expanding speed"),
    ],
)
def test_every_wrong_parameter_has_its_own_error(
    make: abc.Callable[[], object], message: str
) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        make()
    assert isinstance(caught.value, ValueError)


def test_what_is_not_a_spec_is_refused(store: bloomstore.Store) -> None:
    with pytest.raises(SpecError, match="a spec is Fixed"):
        store.create("seen", {"capacity": 5})  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="durability must be"):
        store.create("seen", SPEC, durability="maybe")  # type: ignore[arg-type]
    assert list(store) == []


def test_a_batch_is_seen_by_its_owner_at_once_and_by_all_at_its_end(
    store: bloomstore.Store,
) -> None:
    users = store.create("users", SPEC)
    mails = store.create("mails", SPEC, durability="process")
    with store.batch():
        assert users.add("alice")
        assert not users.add("alice")
        assert mails.add_many(["a@b", "c@d", "a@b"]) == 2
        assert "alice" in users
        assert "bob" not in users
        assert users.may_contain_many(["alice", "bob"]).tolist() == [True, False]
        assert users.stats().keys == 0
    assert users.stats().keys == 1
    assert "alice" in users
    assert mails.may_contain_many(["a@b", "c@d"]).all()


def test_an_exception_discards_the_whole_batch(store: bloomstore.Store) -> None:
    users = store.create("users", SPEC)
    with pytest.raises(RuntimeError), store.batch():
        users.add("alice")
        raise RuntimeError
    assert "alice" not in users
    assert users.stats().keys == 0


def test_a_nested_batch_joins_the_outer_one(store: bloomstore.Store) -> None:
    users = store.create("users", SPEC)
    with pytest.raises(RuntimeError), store.batch():
        with store.batch():
            users.add("alice")
        raise RuntimeError
    assert "alice" not in users


def test_a_large_batch_grows_its_filters(store: bloomstore.Store) -> None:
    users = store.create("users", SPEC)
    with store.batch():
        assert users.add_many(range(100_000)) > 99_000
    assert users.may_contain_many(range(100_000)).all()
    stats = users.stats()
    assert stats.error_rate <= 0.01
    assert all(stage.sealed for stage in stats.stages[:-1])


def test_what_cannot_be_part_of_a_batch_says_so(store: bloomstore.Store) -> None:
    users = store.create("users", SPEC)
    calls: list[abc.Callable[[], object]] = [
        lambda: store.create("b", SPEC),
        lambda: store.drop("users"),
        lambda: store.checkpoint(),
        lambda: users.fence("why"),
        lambda: store.rebuild("users").__enter__(),
        lambda: store.notes.__setitem__("a", b"b"),
    ]
    with store.batch():
        for call in calls:
            with pytest.raises(BatchError, match="cannot be part of a batch"):
                call()


def test_a_fence_answers_maybe_in_every_process_and_after_reopening(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        first, second = users.fence("bulk load"), users.fence("another")
        assert "nobody" in users
        assert str(users.state) == "fenced: another; bulk load"
    with bloomstore.open(path) as store:
        users = store["users"]
        assert users.may_contain_many(["nobody"]).all()
        users.add("alice")
        users.unfence(first)
        assert "nobody" in users
        users.unfence(second)
        users.unfence(second)
        assert "nobody" not in users
        assert "alice" in users
        assert users.state.is_sound


@pytest.mark.parametrize("reason", [5, b"a", ("a", "b")])
def test_a_reason_that_is_no_text_is_refused_and_changes_nothing(
    store: bloomstore.Store, reason: Any
) -> None:
    users = store.create("users", SPEC)
    for call in (lambda: users.fence(reason), lambda: store.create("new", SPEC, fence=reason)):
        with pytest.raises(SpecError, match="the reason of a fence is a str, got"):
            call()
    assert list(store) == ["users"]
    assert users.state.is_sound


def test_a_handle_that_was_never_made_is_no_crash() -> None:
    with pytest.raises((AttributeError, TypeError)):
        "key" in bloomstore.Filter.__new__(bloomstore.Filter)  # noqa: B015


def test_notes_are_a_durable_mapping(path: Path) -> None:
    with bloomstore.open(path) as store:
        store.notes["plugin/position"] = b"\0\1"
        store.notes["b"] = b""
        with pytest.raises(SpecError):
            store.notes["c"] = "text"  # type: ignore[assignment]
        with pytest.raises(SpecError):
            store.notes[""] = b"x"
    with bloomstore.open(path) as store:
        assert dict(store.notes) == {"plugin/position": b"\0\1", "b": b""}
        del store.notes["b"]
        assert "b" not in store.notes
        with pytest.raises(KeyError):
            del store.notes["b"]


def test_what_is_public_on_a_store_is_meant_to_be() -> None:
    public = {name for name in dir(bloomstore.Store) if not name.startswith("_")}
    assert public == set(
        """
        apart backup batch boot check checkpoint close create drop ensure generation incarnation
        is_writing_here notes rebuild repair
        """.split()
    )


def test_a_plugin_sees_whether_its_thread_is_writing(store: bloomstore.Store) -> None:
    assert not store.is_writing_here
    inside = []
    store.notes["a"] = b"1"
    store.notes.change("a", lambda old: inside.append(store.is_writing_here))
    assert inside == [True]
    assert not store.is_writing_here
    assert store.boot == store._core.boot
