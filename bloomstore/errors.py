"""Every error this package raises on purpose, grouped by when it can happen.

Messages say what, where, found and expected. Errors that callers act upon carry the facts as
attributes. Only errors about arguments are also a ValueError, TypeError, KeyError or
RuntimeError.
"""

from __future__ import annotations

from pathlib import Path


class BloomStoreError(Exception):
    """Base of every error this package raises on purpose."""


# Arguments -------------------------------------------------------------------------


class SpecError(BloomStoreError, ValueError):
    """A parameter is out of range, or two parameters contradict each other."""


class GeometryMismatch(SpecError):
    """Two filters cannot be combined because their geometries differ."""

    def __init__(self, left: object, right: object) -> None:
        super().__init__(f"geometries differ: {left} and {right}")
        self.left = left
        self.right = right


class KeyTypeError(BloomStoreError, TypeError):
    """A key is of a type that has no canonical encoding."""


class KeyValueError(BloomStoreError, ValueError):
    """A key has an accepted type, but its value equals no key (NaN) or cannot be read."""


class KeysChanged(BloomStoreError, RuntimeError):
    """The container of keys changed its length while it was read, perhaps by another thread.

    Keys of chunks that were read before may have been added.
    """

    def __init__(self, kind: str, before: int | None = None, now: int | None = None) -> None:
        counts = "" if before is None else f": {before} keys when the call began, now {now}"
        super().__init__(
            f"the {kind} of keys changed while it was read{counts}; give a copy of it, or keep"
            " other threads from changing it"
        )
        self.before = before
        self.now = now


# Names -----------------------------------------------------------------------------


class FilterNotFound(BloomStoreError, KeyError):
    """The store has no filter of this name (any more)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"no filter named {self.name!r} in this store"


class NoteNotFound(BloomStoreError, KeyError):
    """The store has no note of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"no note named {self.name!r} in this store"


class FilterExists(BloomStoreError):
    """The store already has a filter of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a filter named {name!r} already exists")
        self.name = name


class FilterFull(BloomStoreError):
    """A filter that cannot grow has reached its capacity; the keys before this one were added."""

    def __init__(self, name: str, capacity: int, added: int) -> None:
        super().__init__(
            f"filter {name!r} is full: sized for {capacity} keys and cannot grow"
            f" ({added} keys of this call were added)"
        )
        self.name = name
        self.capacity = capacity
        self.added = added


# Opening ---------------------------------------------------------------------------


class StoreNotFound(BloomStoreError):
    """There is no store at this path, and the caller did not ask to create one."""

    def __init__(self, path: Path, why: str | None = None) -> None:
        super().__init__(f"no store at {path}" + (f": {why}" if why else ""))
        self.path = path


class NotAStore(BloomStoreError):
    """The path holds something that is not a store; nothing was touched."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path} is not a store: {what}")
        self.path = path


class UnsupportedFilesystem(BloomStoreError):
    """The file system cannot keep the promise (network file systems)."""


class UnsupportedPlatform(BloomStoreError):
    """This operating system is not supported by this version."""


class UnsupportedVersion(BloomStoreError):
    """The file is sound, but newer than this library."""

    def __init__(self, path: Path, found: int, newest: int, what: str = "format version") -> None:
        super().__init__(f"{path}: {what} {found}, this library reads up to {newest}")
        self.path = path
        self.found = found


class DamagedFile(BloomStoreError):
    """A file of the store has bytes that fail their checksum or make no sense."""

    def __init__(self, path: Path, offset: int, what: str, advice: str = "") -> None:
        super().__init__(f"{path}: at byte {offset}: {what}{advice and '; '}{advice}")
        self.path = path
        self.offset = offset
        self.what = what


class DamagedRow(BloomStoreError):
    """A row of the catalog fails its checksum or makes no sense."""

    def __init__(self, table: str, key: bytes, what: str) -> None:
        super().__init__(f"catalog table {table!r}, row {key.hex() or 'empty'}: {what}")
        self.table = table
        self.key = key
        self.what = what


# Using -----------------------------------------------------------------------------


class StoreClosed(BloomStoreError):
    """The store behind this handle was closed."""


class StoreReadOnly(BloomStoreError):
    """A change was asked of a store that was opened for reading."""


class StoreLocked(BloomStoreError):
    """Another process kept the writer lock for longer than the timeout, or this thread has it.

    The latter happens to adds by signal handlers, finalizers and the code of keys, when they come
    in the middle of another change of the same thread.
    """


class BatchError(BloomStoreError):
    """This operation cannot be part of a batch."""


class StoreFailed(BloomStoreError):
    """The disk refused a write or a sync; keys that were not acknowledged may be lost."""


# Rebuilding ------------------------------------------------------------------------


class SourceError(BloomStoreError):
    """A source cannot be read, or is not the one that was asked for."""


class Incomplete(SourceError):
    """The keys that were read are not all there are, or not of one state of the source."""


class BadKey(BloomStoreError):
    """A line, a field or an argument is not a key of the type that was asked for."""


class RebuildError(BloomStoreError):
    """A rebuild cannot run as it was asked for; the filter is unchanged."""


class NotVerifiable(BloomStoreError):
    """A filter that answers "maybe" to everything cannot be verified."""


class NotCopyable(BloomStoreError):
    """The bits of a filter cannot be taken over from another store; the message says why."""


# Guarded databases -----------------------------------------------------------------


class DatabaseError(BloomStoreError):
    """A database could not be reached, or refused what it was asked to do."""


class MigrationError(BloomStoreError):
    """The tables of bloomstore could not be brought to a revision."""


class BuildError(BloomStoreError):
    """A guard could not be built; it still answers UNKNOWN."""
