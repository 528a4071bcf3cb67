"""New files: tombstone, file, publication, generation; and the end of files.

Order of every new file (a crash between any two steps leaves nothing that is not either a stage
or named by a tombstone):
  1. commit a tombstone that names the coming file and takes its number;
  2. create it with all its space, sync it and its folder, holding a lock on the file itself;
  3. one commit: stage row and checksums in, tombstone out, generation raised;
  4. set the generation word.
Everything here is called by the holder of the writer lock.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import fcntl
import logging
import os
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.catalog.reasons import Reason
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.crash import crash_point
from bloomstore.errors import DamagedFile, StoreFailed
from bloomstore.families.stage import StageSpec
from bloomstore.segment.blocks import block_checksums, zero_checksums
from bloomstore.segment.header import SegmentHeader
from bloomstore.segment.mapping import open_file, sync_directory, try_flock
from bloomstore.segment.segment import make_segment
from bloomstore.store.durable import clock
from bloomstore.store.process.open_files import Core

log = logging.getLogger("bloomstore")


def new_stage(
    core: Core,
    row: FilterRow,
    chain: int,
    stage: int,
    spec: StageSpec,
    also: abc.Callable[[CatalogChange], None] | None = None,
    *,
    doubt: Reason | None = None,
) -> StageRow:
    """Makes a stage and publishes it, with other changes that belong into the same commit (`also`).

    With a doubt it answers "maybe" to everything, as a poisoned one does.
    """
    planned = StageRow(
        filter_number=row.number,
        chain=chain,
        stage=stage,
        number=0,
        seed=row.spec.seed,
        spec=spec,
        opened_at=time.time(),
        opened_boot=core.boot,
        opened_clock=clock.since_boot(),
        poisoned=doubt,
    )
    with _new_file(core, planned, None) as (stage_row, header), core.change() as change:
        if also is not None:
            also(change)
        change.add_stage(row.name, stage_row)
        change.put_checksums(stage_row.number, zero_checksums(header))
        change.delete_tombstone(stage_row.number)
        change.raise_generation()
    core.counts[stage_row.number] = (0, 0)
    core.believed.add(stage_row.number)  # all zeros: damage cannot lose a key
    return stage_row


def replace_segment(
    core: Core, stage: StageRow, vector: NDArray[np.uint8], entries: list[JournalRow]
) -> StageRow:
    """Gives a stage, with its counts, a new file with these bits.

    The journal rows of the old file go: their bits must be among these.
    """
    planned = replace(stage, poisoned=None)
    with _new_file(core, planned, vector) as (stage_row, header), core.change() as change:
        old = stage.header(core.store_id)
        change.put_tombstone(stage.number, old.file_name, "written again")
        change.delete_stage(stage)
        change.put_stage(stage_row)
        checksums = block_checksums(header, vector, range(header.blocks))
        change.put_checksums(stage_row.number, checksums)
        change.delete_tombstone(stage_row.number)
        change.delete_journal([entry.sequence for entry in entries])
        change.raise_generation()
    core.forget(stage.number)
    return stage_row


@contextlib.contextmanager
def _new_file(
    core: Core, planned: StageRow, vector: NDArray[np.uint8] | None
) -> abc.Iterator[tuple[StageRow, SegmentHeader]]:
    """Steps 1 and 2 of a new file; the block publishes it, and the file stays locked meanwhile."""
    core.catalog.require_room()
    with core.catalog.write() as change:
        stage_row = replace(planned, number=change.take_number())
        header = stage_row.header(core.store_id)
        change.put_tombstone(stage_row.number, header.file_name, "unfinished")
    crash_point("new file: tombstone committed")
    core.require_place()  # a file is made by its path
    try:
        counts = stage_row.set_bits, stage_row.keys
        descriptor = make_segment(core.folder.segments, header, vector, counts)
    except OSError as error:
        with core.catalog.write() as change:
            change.delete_tombstone(stage_row.number)
        raise StoreFailed(
            f"{core.folder.segments / header.file_name}: cannot make a file of"
            f" {header.file_bytes} bytes: {error.strerror}"
        ) from error
    try:
        yield stage_row, header
    finally:
        os.close(descriptor)


def next_stage(core: Core, row: FilterRow, stages: list[StageRow]) -> StageRow | None:
    """Grows a chain by one stage; None when the family does not grow."""
    newest = stages[-1]
    seconds = clock.seconds_open(newest, core.boot)
    # Not the time of day, which may have been set since: only the difference counts.
    full = replace(newest, filled_at=newest.opened_at + (seconds or 0.0))
    if seconds is None and row.spec.follows_rates:
        log.warning(
            "filter %r: no clock tells how long stage %d was open (the clock was set back: opened"
            " at %.0f, now %.0f); the next stage is sized by the rates of the stages before it",
            row.name,
            newest.stage,
            newest.opened_at,
            time.time(),
        )
    known = (clock.arrival_rate(stage) for stage in [*stages[:-1], full])
    spec = row.spec.stage(len(stages), [rate for rate in known if rate is not None])
    if spec is None:
        return None

    def note_the_time(change: CatalogChange) -> None:
        change.update_stage(full, filled_at=full.filled_at)

    return new_stage(core, row, full.chain, len(stages), spec, note_the_time)


def bury_chain(change: CatalogChange, core: Core, filter_number: int, chain: int) -> None:
    """Takes a chain out of the catalog; tombstones allow its files to be unlinked."""
    stages = change.stage_rows(filter_number, chain)
    for stage in stages:
        file_name = stage.header(core.store_id).file_name
        change.put_tombstone(stage.number, file_name, "dropped")
        change.delete_stage(stage)
    with core.catalog.read() as view:  # finds the rows without reading the whole journal
        rows = [entry for stage in stages for entry in view.journal_of(stage.number)]
    change.delete_journal([entry.sequence for entry in rows])


def discard_coming(core: Core, row: FilterRow) -> None:
    """Gives up the coming chain of a filter; the live one stays."""
    assert row.coming_chain is not None
    with core.change() as change:
        bury_chain(change, core, row.number, row.coming_chain)
        change.update_filter(row.name, coming_chain=None, coming_stages=0, coming_spec=None)
        change.raise_generation()
    bury(core)


def bury(core: Core) -> None:
    """Unlinks every tombstoned file that is not being made, then removes the tombstones."""
    with core.catalog.read() as view:
        tombstones = view.tombstones()
    core.require_place()  # they are unlinked by their paths
    gone = [number for number, name in tombstones.items() if _unlink(core, name)]
    if gone:
        try:
            sync_directory(core.folder.segments)
        except OSError as error:
            what = f"sync failed: {error.strerror}"
            raise StoreFailed(f"{core.folder.segments}: {what}") from error
        crash_point("drop: file unlinked")
        with core.catalog.write() as change:
            for number in gone:
                change.delete_tombstone(number)
        crash_point("drop: tombstones removed")


def _unlink(core: Core, name: str) -> bool:
    if "/" in name or not (name.endswith(".seg") and name.isascii() and name.isprintable()):
        return False  # only a damaged or hostile row has such a name
    path = core.folder.segments / name
    try:
        descriptor = open_file(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    except (OSError, DamagedFile):
        return False
    try:
        if not try_flock(descriptor, fcntl.LOCK_EX):
            return False
        path.unlink()
        return True
    except OSError as error:
        log.warning("%s cannot be removed, a later opening tries again: %s", path, error.strerror)
        return False
    finally:
        os.close(descriptor)
