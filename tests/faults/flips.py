"""Single flipped bits in data.mdb of a closed store, and what becomes of its keys.

The flips go over every page that is in use: meta pages, free list, tables. A process of its own
opens the store, first for reading, then for writing; it asks for all keys, ensures, adds, checks.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import struct
import traceback
from pathlib import Path

import bloomstore
from bloomstore import Dynamic, Fixed, Scalable
from bloomstore.errors import BloomStoreError

KEYS = range(2200)
LATER = range(5000, 5003)
SPECS = {
    "dynamic": Dynamic(capacity=500, target_error=0.001),
    "scalable": Scalable(target_error=0.001, initial_capacity=300),
    "fixed": Fixed(capacity=3000, target_error=0.001),
}
NOTE = b"x" * 5000  # has pages of its own
PAGE = 4096
LIMIT = 60  # seconds until a process that opens a damaged store is stuck
_NO_PAGE = (1 << 64) - 1


def make_store(path: Path, *, killed: bool = False) -> None:
    """A closed store, or one whose only process was killed with rows in the journal."""
    process = os.fork()
    if not process:
        status = 1
        try:
            _fill(path, killed=killed)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if killed else 0)


def _fill(path: Path, *, killed: bool) -> None:
    half = len(KEYS) // 2
    with bloomstore.open(path) as store:
        for name, spec in SPECS.items():
            store.ensure(name, spec).add_many(KEYS[:half])
        store.notes["note"] = NOTE
        store.checkpoint()
        for name in SPECS:
            store[name].add_many(KEYS[half:])
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)


def live_pages(data: bytes) -> dict[int, str]:
    """Every page that the last commit uses, and what it is."""
    newest = max((0, 1), key=lambda page: struct.unpack_from("=Q", data, page * PAGE + 144))
    free, main = (
        struct.unpack_from("=40xQ", data, newest * PAGE + 40 + 48 * tree)[0] for tree in (0, 1)
    )
    found = {0: "meta", 1: "meta"}
    _reach(data, free, "free list", found)
    _reach(data, main, "list of tables", found)
    return found


def _reach(data: bytes, page: int, name: str, found: dict[int, str]) -> None:
    if page == _NO_PAGE:
        return
    base = page * PAGE
    _, kind, lower = struct.unpack_from("=Q2xHH", data, base)
    found[page] = name
    for at in struct.unpack_from(f"={(lower - 16) // 2}H", data, base + 16):
        low, high, flags, key_size = struct.unpack_from("=HHHH", data, base + at)
        key = data[base + at + 8 : base + at + 8 + key_size]
        value = base + at + 8 + key_size
        if kind == 1:
            _reach(data, low | high << 16 | flags << 32, name, found)
        elif flags & 2:
            _reach(data, struct.unpack_from("=40xQ", data, value)[0], key.decode(), found)
        elif flags & 1:
            (first,) = struct.unpack_from("=Q", data, value)
            (count,) = struct.unpack_from("=I", data, first * PAGE + 12)
            found.update(dict.fromkeys(range(first, first + count), f"{name}, long"))


class Flips:
    """A sound store, and places of its catalog to be damaged."""

    def __init__(self, sound: Path, seed: int) -> None:
        self._sound = sound
        self._chance = random.Random(seed)
        self._data = (sound / "catalog" / "data.mdb").read_bytes()
        self._pages = live_pages(self._data)
        used = [at for at, byte in enumerate(self._data) if byte and at // PAGE in self._pages]
        # Half of the flips go to the bytes that hold the tree together.
        heads = [at for at in used if at % PAGE < 80 or self._pages[at // PAGE] in _SMALL]
        self._places = [used, heads]

    def one(self, path: Path) -> tuple[str, str, set[str]]:
        """One flip in a copy: which kind of page, where, and what came of it ("ok", ...)."""
        at = self._chance.choice(self._chance.choice(self._places))
        bit = self._chance.randrange(8)
        shutil.copytree(self._sound, path)
        with (path / "catalog" / "data.mdb").open("r+b") as file:
            file.seek(at)
            file.write(bytes([self._data[at] ^ 1 << bit]))
        found = look(path)
        shutil.rmtree(path)
        where = f"page {at // PAGE}, byte {at % PAGE}, bit {bit}"
        return self._pages[at // PAGE], where, found


_SMALL = ("meta", "free list", "list of tables")
HARMLESS = {"ok", "maybe", "refused"}


def look(path: Path) -> set[str]:
    """What a process of its own finds: ok, maybe, refused; anything else breaks the promise."""
    pipe, pipe_in = os.pipe()
    process = os.fork()
    if not process:
        try:
            signal.alarm(LIMIT)
            logging.disable()
            found = {what for read_only in (True, False) for what in _visit(path, read_only)}
            os.write(pipe_in, "\n".join(sorted(found)).encode()[:60_000])
        except BaseException:  # noqa: BLE001  reported by whoever reads the pipe
            os.write(pipe_in, traceback.format_exc()[-3000:].replace("\n", " | ").encode())
        finally:
            os._exit(0)
    os.close(pipe_in)
    with os.fdopen(pipe, encoding="utf-8") as file:
        found = set(file.read().splitlines())
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return found | ({f"died by {signal.Signals(-code).name}"} if code < 0 else set()) or {"ok"}


def _visit(path: Path, read_only: bool) -> set[str]:
    found: set[str] = set()
    try:
        with bloomstore.open(path, read_only=read_only) as store:
            for name, spec in SPECS.items():
                found |= _ask(store, name, spec, read_only)
            try:
                if store.notes.get("note") != NOTE:
                    found.add("the note is lost")
            except BloomStoreError:
                found.add("refused")
            try:
                list(store.check())
            except BloomStoreError:
                found.add("refused")
    except BloomStoreError:
        found.add("refused")
    return found


def _ask(store: bloomstore.Store, name: str, spec: object, read_only: bool) -> set[str]:
    found: set[str] = set()
    try:
        users = store[name]
        if not users.may_contain_many(KEYS).all():
            found.add(f"keys of {name} are lost")
        if not users.state.is_sound:
            found.add("maybe")
    except BloomStoreError:
        found.add("refused")
    if read_only:
        return found
    try:
        users = store.ensure(name, spec)  # type: ignore[arg-type]
        if not users.may_contain_many(KEYS).all():
            found.add(f"{name} was made again, without its keys")
        users.add_many(LATER)
        if not users.may_contain_many(LATER).all():
            found.add(f"new keys of {name} are lost")
    except BloomStoreError:
        found.add("refused")
    return found
