"""What a process asked of the device, step by step, and when each step became certain.

In: the log of device.py and the folder as it was before, out: a Trace.

What is certain (POSIX without the kindness of a particular file system):
  1. Bytes are certain once a sync of their file has succeeded after them: fsync and fdatasync for
     the whole file, msync for its range, a write through an O_DSYNC descriptor for itself. Others
     may be on the disk or not, sector by sector; the length they give the file likewise.
  2. A store to a mapped page is written back at any time from then on, or never before a sync.
  3. After a sync that failed, what it should have made certain never becomes certain by a later
     sync: the kernel may have marked the pages clean.
  4. A name made, removed or changed is certain once its directory was synced after it. Until then
     it may be or not: each by itself, or in order per directory.
  5. Writes to one sector arrive in the order in which they were made.

Not here: what a power cut may leave of the steps (images.py).
"""

from __future__ import annotations

import collections.abc as abc
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path

from tests.powerloss.device import RECORD
from tests.powerloss.folders import Image

NEVER = 1 << 62
WORDS = {
    "C": "create",
    "D": "make folder",
    "U": "unlink",
    "N": "rename",
    "W": "write",
    "S": "store",
    "T": "truncate to",
    "E": "allocate to",
    "F": "sync",
    "G": "sync part of",
    "H": "sync folder",
    "X": "failed sync of",
}


@dataclass(slots=True)
class Step:
    """One recorded operation; `certain` is the number of the step that made it so."""

    number: int
    kind: str
    thing: int
    offset: int = 0
    bytes: bytes = b""
    folder: int = 0
    name: str = ""
    to_folder: int = 0
    to_name: str = ""
    certain: int = NEVER


@dataclass(slots=True)
class Thing:
    """A file or a folder, whatever its names are."""

    is_folder: bool
    start: bytes = b""
    steps: list[Step] = field(default_factory=list)
    # Contents that were certain at these steps, so that images need not begin at the beginning.
    settled: list[tuple[int, int, bytes]] = field(default_factory=list)


class Trace:
    """A recording."""

    def __init__(self, log: bytes, root: Path, before: Image, inodes: dict[int, str]) -> None:
        """`before` is the content of the folder at the start, `inodes` which file is which."""
        self._root = os.fspath(root.resolve())
        self.things: dict[int, Thing] = {}
        self.names: list[Step] = []  # steps that change names, in order
        self.acks: list[tuple[int, str]] = []
        self._story: list[str] = []
        self.steps = 0
        self.moments: list[int] = []  # steps at which something becomes certain or is promised
        self._ids = itertools.count(1)
        self._called: dict[int, str] = {}  # thing -> its first name
        self._current: dict[int, int] = {}  # inode -> thing, as of the step being read
        self._tree: dict[int, dict[str, int]] = {}
        self.top = self._called_so(self._new(is_folder=True), "the folder")
        self._take_start(before, inodes)
        self.start_tree = {folder: dict(names) for folder, names in self._tree.items()}
        self._read(log)
        self._settle()

    def _new(self, *, is_folder: bool, start: bytes = b"") -> int:
        thing = next(self._ids)
        self.things[thing] = Thing(is_folder, start)
        if is_folder:
            self._tree[thing] = {}
        return thing

    def _called_so(self, thing: int, name: str) -> int:
        self._called[thing] = name
        return thing

    def _take_start(self, before: Image, inodes: dict[int, str]) -> None:
        made: dict[str, int] = {"": self.top}
        for path in sorted(before):
            content = before[path]
            thing = self._new(is_folder=content is None, start=content or b"")
            made[path] = self._called_so(thing, path)
            parent, _, name = path.rpartition("/")
            self._tree[made[parent]][name] = thing
        for inode, path in inodes.items():
            self._current[inode] = made[path]

    def _place(self, path: str) -> tuple[int, str]:
        """The folder and the name of an absolute path, as of the step being read."""
        parts = path.removeprefix(self._root).strip("/").split("/")
        folder = self.top
        for part in parts[:-1]:
            folder = self._tree[folder][part]
        return folder, parts[-1]

    def _read(self, log: bytes) -> None:
        live: dict[int, bytearray] = {
            thing: bytearray(known.start) for thing, known in self.things.items()
        }
        pending: dict[int, list[Step]] = {}
        pending_names: dict[int, list[Step]] = {}
        rest = b""
        at = 0
        while at < len(log):
            kind_code, name_length, inode, offset, length, count = RECORD.unpack_from(log, at)
            at += RECORD.size
            name = log[at : at + name_length].decode()
            raw = log[at + name_length : at + name_length + count]
            at += name_length + count
            kind = chr(kind_code)
            number = self.steps
            if kind == "B":
                self._current.setdefault(inode, self.top)
                continue
            if kind == "Z":
                continue
            if kind == "A":
                *lines, rest = (rest + raw).split(b"\n")
                for line in lines:
                    self.acks.append((number, line.decode()))
                self.moments.append(number)
                self._story.append(f"{number} promise {raw.decode().strip()[:60]}")
                self.steps += 1
                continue
            if kind in "CD":
                thing = self._new(is_folder=kind == "D")
                self._current[inode] = self._called_so(thing, name.removeprefix(self._root))
                live[thing] = bytearray()
                folder, own = self._place(name)
                self._tree[folder][own] = thing
                self._add_name(Step(number, kind, thing, folder=folder, name=own), pending_names)
            elif kind == "U":
                folder, own = self._place(name)
                thing = self._tree[folder].pop(own)
                self._add_name(Step(number, kind, thing, folder=folder, name=own), pending_names)
            elif kind == "N":
                old, new = name.split("\n")
                folder, own = self._place(old)
                to_folder, to_name = self._place(new)
                thing = self._tree[folder].pop(own)
                self._tree[to_folder][to_name] = thing
                for one, known in self._called.items():
                    self._called[one] = known.replace(
                        old.removeprefix(self._root), new.removeprefix(self._root)
                    )
                step = Step(number, kind, thing, 0, b"", folder, own, to_folder, to_name)
                self._add_name(step, pending_names)
            elif kind == "H":
                for step in pending_names.pop(self._current[inode], []):
                    if step.kind != "N" or step.folder == step.to_folder:
                        step.certain = number
                    elif step.certain == NEVER:
                        step.certain = -1  # one of two folders
                    else:
                        step.certain = number
                self.moments.append(number)
            elif kind in "WS":
                thing = self._current[inode]
                content = live[thing]
                if kind == "S" and content[offset : offset + len(raw)] == raw:
                    continue  # seen before, by this process or another
                put(content, offset, raw)
                self._add(Step(number, "W", thing, offset, raw), pending)
            elif kind in "TE":
                thing = self._current[inode]
                _set_length(live[thing], offset, grow_only=kind == "E")
                self._add(Step(number, kind, thing, offset), pending)
            elif kind == "F":
                for step in pending.pop(self._current[inode], []):
                    step.certain = number
                self.things[self._current[inode]].settled.append((number, 0, b""))
                self.moments.append(number)
            elif kind == "G":
                thing = self._current[inode]
                left = []
                for step in pending.pop(thing, []):
                    first, last = offset, offset + length
                    if step.kind != "W" or (
                        first <= step.offset and step.offset + len(step.bytes) <= last
                    ):
                        step.certain = number
                    else:
                        left.append(step)
                pending[thing] = left
                self.moments.append(number)
            elif kind == "X":
                pending.pop(self._current[inode], None)
                pending_names.pop(self._current[inode], None)
                self.moments.append(number)
            self._story.append(f"{number} {WORDS[kind]} {self._tell(inode, name)} {offset}")
            self.steps += 1
        self.live = live
        self.live_tree = self._tree

    def _add(self, step: Step, pending: dict[int, list[Step]]) -> None:
        self.things[step.thing].steps.append(step)
        pending.setdefault(step.thing, []).append(step)

    def _add_name(self, step: Step, pending: dict[int, list[Step]]) -> None:
        self.names.append(step)
        self.moments.append(step.number)
        for folder in {step.folder, step.to_folder} - {0}:
            pending.setdefault(folder, []).append(step)

    def _settle(self) -> None:
        """Contents at each whole sync, until one of the file's syncs failed."""
        for thing in self.things.values():
            content = bytearray(thing.start)
            settled = [(-1, 0, bytes(content))]
            used = 0
            for number, _, _ in thing.settled:
                while used < len(thing.steps) and thing.steps[used].number < number:
                    apply(content, thing.steps[used])
                    used += 1
                if any(step.certain > number for step in thing.steps[:used]):
                    break  # what a failed sync left behind stays uncertain
                settled.append((number, used, bytes(content)))
            thing.settled = settled

    def _tell(self, inode: int, name: str) -> str:
        """The name of a thing, as of the step being read."""
        if name:
            return " to ".join(one.removeprefix(self._root) for one in name.split("\n"))
        return self._called.get(self._current[inode], "?")

    def story(self, moment: int, count: int = 8) -> list[str]:
        """The steps before a moment, for people."""
        return self._story[max(0, moment - count) : moment]

    def acknowledged(self, moment: int) -> list[str]:
        """What was promised before this step."""
        return [line for number, line in self.acks if number < moment]

    def last(self) -> Image:
        """The folder as the process left it, nothing lost."""
        return self.collect(self.live_tree, lambda thing: bytes(self.live[thing]))

    def collect(
        self, tree: dict[int, dict[str, int]], content: abc.Callable[[int], bytes]
    ) -> Image:
        image: Image = {}

        def walk(folder: int, prefix: str) -> None:
            for name, thing in tree.get(folder, {}).items():
                if self.things[thing].is_folder:
                    image[prefix + name] = None
                    walk(thing, f"{prefix}{name}/")
                else:
                    image[prefix + name] = content(thing)

        walk(self.top, "")
        return image


def put(content: bytearray, offset: int, raw: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(raw)] = raw


def _set_length(content: bytearray, length: int, *, grow_only: bool) -> None:
    if len(content) < length:
        content.extend(bytes(length - len(content)))
    elif not grow_only:
        del content[length:]


def apply(content: bytearray, step: Step) -> None:
    if step.kind == "W":
        put(content, step.offset, step.bytes)
    else:
        _set_length(content, step.offset, grow_only=step.kind == "E")
