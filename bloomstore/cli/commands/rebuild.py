"""`bloomstore rebuild STORE NAME --from SOURCE`: refill a filter while it stays in use.

The filter answers as before until all of the source is read and proved complete; then it is
switched to the new chain in one step. A rebuild that was interrupted, by a kill, Ctrl-C or SIGTERM,
continues where it was when the same command is given again.
Exit status: 0 rebuilt (or planned, or given up), 1 rebuilt but it still answers "maybe", 2 an
error, 130 interrupted.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import signal
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import bloomstore
from bloomstore import BloomStoreError, Filter, FilterStats, Store
from bloomstore.cli.support.arguments import (
    UsageError,
    add_json,
    add_name,
    add_store,
    error_share,
    real_number,
    whole_number,
)
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.numbers import count, plural, size
from bloomstore.cli.support.progress import Progress
from bloomstore.cli.support.sources import (
    add_source_options,
    refuse_for_a_store,
    source_from_options,
)
from bloomstore.cli.support.tables import print_facts
from bloomstore.rebuild import (
    PATIENCE,
    RebuildError,
    Rebuilt,
    Source,
    copy_filter,
    give_up,
    plan_rebuild,
    read_state,
    rebuild,
)

HELP = "refill a filter from its source while it stays in use"
EXAMPLES = """\
  bloomstore rebuild filters/ seen --from keys.txt
  bloomstore rebuild filters/ seen --from keys.txt --dry-run
  bloomstore rebuild filters/ seen --from users.csv --column email --target-error 1e-4
  bloomstore rebuild filters/ seen --from users.parquet --column email --capacity 1M
  bloomstore rebuild filters/ seen --from sqlite:///app.db --table users --column email
  bloomstore rebuild filters/ ids --from sqlite:///app.db --table users --column id --parallel 4
  bloomstore rebuild filters/ seen --from sqlite:///app.db --select "SELECT email FROM users"
  bloomstore rebuild guards/ users.email --from sqlite:///app.db --models models:Base
  bloomstore rebuild filters/ seen --from other/ --filter seen
  bloomstore rebuild filters/ seen --give-up
"""
_SAMPLE_SECONDS = 1.0


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_name(parser)
    add_source_options(parser, is_required=False)  # --give-up needs none
    parser.add_argument(
        "--filter",
        metavar="NAME",
        help="--from is another store: copy this filter of it, bits and size (default: the same"
        " name); writers wait meanwhile",
    )
    size_group = parser.add_argument_group("size of the new filter (its family stays)")
    size_group.add_argument(
        "--capacity",
        type=_capacity,
        metavar="KEYS|auto",
        help="keys to make room for; auto (default): as many as the source has, and a tenth more",
    )
    size_group.add_argument(
        "--target-error", type=error_share, metavar="P", help="another target error"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done; change nothing"
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--restart", action="store_true", help="begin again and discard an interrupted rebuild"
    )
    one.add_argument(
        "--give-up", action="store_true", help="discard an interrupted rebuild, and do nothing else"
    )
    parser.add_argument(
        "--other-keys",
        action="store_true",
        help="allow a source that has none of the filter's keys",
    )
    parser.add_argument(
        "--patience",
        type=real_number,
        default=PATIENCE,
        metavar="SECONDS",
        help=f"how long to wait for open transactions (default {PATIENCE:g})",
    )
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Rebuilds the filter and prints the outcome."""
    with bloomstore.open(args.store, create=False) as store:
        if args.give_up:
            return _give_up(store, args, out)
        if args.source is None:
            raise UsageError("--from SOURCE is missing: a file, a URL or another store")
        target = store[args.name]
        if Path(args.source).is_dir():
            return _copy(store, target, args, out)
        if args.filter is not None:
            raise UsageError(f"--filter: {args.source} is not the folder of a store")
        with _stopped_by_terminate(), source_from_options(args, store) as source:
            if args.dry_run:
                return _plan(target, source, args, out)
            before = target.stats()
            done = _rebuild(store, source, args)
        # Not `target`: a guard that was built for another database gets a new filter.
        return _report(store[args.name], done, before, args, out)


def _copy(store: Store, target: Filter, args: Namespace, out: TextIO) -> int:
    """Copies a filter from another store."""
    refuse_for_a_store(args)
    is_same = Path(args.source).samefile(store.path)
    name = args.filter or args.name
    with (
        _stopped_by_terminate(),
        bloomstore.open(args.source, create=False, read_only=not is_same) as other,
    ):
        if name not in other:
            raise UsageError(f"{args.source} has no filter {name!r}, it has {_names(other)}")
        theirs = other[name].stats()
        if not args.dry_run:
            before = target.stats()
            return _report(target, copy_filter(store, args.name, other, name), before, args, out)
    stages, file = len(theirs.stages), theirs.file_bytes
    if args.json:
        print_json({"stages": stages, "keys": theirs.keys, "file_bytes": file}, out)
    else:
        facts = [("source", f"{args.source}, {name}"), ("keys", count(theirs.keys))]
        print_facts([*facts, ("stages", str(stages)), ("file", size(file))], out)
    return 0


def _names(store: Store) -> str:
    return ", ".join(map(repr, store)) or "none"


def _report(
    target: Filter, done: Rebuilt, before: FilterStats, args: Namespace, out: TextIO
) -> int:
    after = target.stats()
    if args.json:
        print_json(asdict(done) | {"spec": after.spec.to_dict(), "bits": after.bits}, out)
    else:
        _tell(done, before, after, out)
    return 1 if done.still else 0


def _rebuild(store: Store, source: Source, args: Namespace) -> Rebuilt:
    with Progress(None, unit="rows") as progress:
        try:
            return rebuild(
                store,
                args.name,
                source,
                capacity=args.capacity,
                target_error=args.target_error,
                restart=args.restart,
                other_keys=args.other_keys,
                patience=args.patience,
                progress=progress.reach,
                planned=progress.expect,
            )
        except KeyboardInterrupt:
            kept = _kept(store, args.name, source, progress.keys)
            raise KeyboardInterrupt(f"interrupted; {kept}") from None
        except RebuildError:  # another rebuild of this filter is running: nothing was done
            raise
        except (BloomStoreError, OSError) as error:
            kept = _kept(store, args.name, source, progress.keys)
            raise RebuildError(f"{error}; {kept}") from error


def _kept(store: Store, name: str, source: Source, rows: int) -> str:
    """Says how much is kept of a rebuild that ended early."""
    state = read_state(store, name)
    if rows and source.why_not_resumable:
        return (
            f"the filter is unchanged, and no row that was read is kept: {source.why_not_resumable}"
        )
    if state is None or state.position is None:
        return "the filter is as it was"
    return f"{count(state.rows)} rows are kept, the same command continues after them"


def _plan(target: Filter, source: Source, args: Namespace, out: TextIO) -> int:
    plan = plan_rebuild(target, source, capacity=args.capacity, target_error=args.target_error)
    rate = _reading_rate(source)
    seconds = None if plan.rows is None or not rate else plan.rows / rate
    if args.json:
        document = asdict(plan) | {"spec": plan.spec.to_dict(), "source": source.describe()}
        print_json(document | {"rows_per_second": rate, "seconds": seconds}, out)
        return 0
    facts = [
        ("source", source.describe()),
        ("rows", "unknown" if plan.rows is None else count(plan.rows)),
        ("filter", f"{plan.spec.family}, {plan.spec.stage(0, ()).geometry}"),  # type: ignore[union-attr]
        ("capacity", f"{count(plan.capacity)} keys in one stage"),
        ("bits", f"{count(plan.bits)}, {size(plan.bits // 8)} in memory"),
        ("file", size(plan.file_bytes)),
        ("reading", "nothing to read" if not rate else f"{count(round(rate))} rows/s"),
        ("time", "unknown" if seconds is None else f"about {count(max(1, round(seconds)))} s"),
        ("resumable", f"no: {source.why_not_resumable}" if source.why_not_resumable else "yes"),
    ]
    print_facts(facts, out)
    return 0


def _reading_rate(source: Source) -> float:
    """Rows per second of the first second of reading."""
    started, rows = time.monotonic(), 0
    with contextlib.closing(source.batches(None)) as batches:
        for batch in batches:
            rows += batch.rows
            if time.monotonic() > started + _SAMPLE_SECONDS:
                break
    return rows / max(1e-6, time.monotonic() - started)


def _give_up(store: Store, args: Namespace, out: TextIO) -> int:
    was_begun = give_up(store, args.name)
    if args.json:
        print_json({"given_up": was_begun}, out)
    else:
        print("given up" if was_begun else "nothing was begun", file=out)
    return 0


def _tell(done: Rebuilt, before: FilterStats, after: FilterStats, out: TextIO) -> None:
    if done.began_again:
        print(f"began again: {done.began_again}", file=out)
    resumed = f", {count(done.resumed_at)} of them before" if done.resumed_at else ""
    rows = f"{plural(done.rows, 'row')}{resumed}"
    print(f"rebuilt {done.name}: {rows}, {done.seconds:.1f} s", file=out)
    facts = [
        (name, f"{old} -> {new}")
        for name, old, new in (
            ("keys", count(before.keys), count(after.keys)),
            ("stages", str(len(before.stages)), str(len(after.stages))),
            ("size", size(before.file_bytes), size(after.file_bytes)),
        )
    ]
    print_facts(facts, out)
    if done.still:
        print(f"still answers maybe: {done.still}", file=out)


@contextlib.contextmanager
def _stopped_by_terminate() -> abc.Iterator[None]:
    """SIGTERM ends the rebuild as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _capacity(text: str) -> int | None:
    if text.strip().lower() == "auto":
        return None
    try:
        return whole_number(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}; or auto") from None
