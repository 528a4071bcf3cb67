"""What a process asked of the device, and the images that a power cut at any moment may leave.

In: the log of device.py and the folder as it was before, out: a Trace; in: a moment and choices
by chance, out: an Image, the files of a legal state of the disk at that moment.

What is legal (POSIX without the kindness of a particular file system):
  1. Bytes are certain once a sync of their file has succeeded after them: fsync and fdatasync for
     the whole file, msync for its range, a write through an O_DSYNC descriptor for itself. Others
     may be on the disk or not, sector by sector; the length they give the file likewise.
  2. A store to a mapped page is written back at any time from then on, or never before a sync.
  3. After a sync that failed, what it should have made certain never becomes certain by a later
     sync: the kernel may have marked the pages clean.
  4. A name made, removed or changed is certain once its directory was synced after it. Until then
     it may be or not: each by itself, or in order per directory.
  5. Writes to one sector arrive in the order in which they were made.

Not here: what a store must make of an image (verdict.py).
"""

from __future__ import annotations

import collections.abc as abc
import itertools
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from powerloss.device import RECORD

PAGE_BYTES = 4096
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


Image = dict[str, bytes | None]  # relative path -> bytes, None for a folder


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
                _put(content, offset, raw)
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
                    _apply(content, thing.steps[used])
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
        return self._collect(self.live_tree, lambda thing: bytes(self.live[thing]))

    def image(self, moment: int, chance: random.Random) -> tuple[Image, str]:
        """One legal state of the disk if the power fails before this step, and how it was made."""
        names, how_names = _choose_names(chance)
        keep, how_bytes = _choose_bytes(chance, self, moment)
        tree = self._tree_at(moment, names)

        def content(thing: int) -> bytes:
            return self._content_at(thing, moment, keep)

        return self._collect(tree, content), f"names {how_names}, bytes {how_bytes}"

    def _tree_at(
        self, moment: int, choose: abc.Callable[[Step], bool]
    ) -> dict[int, dict[str, int]]:
        tree = {folder: dict(names) for folder, names in self.start_tree.items()}
        for step in self.names:
            if step.number >= moment:
                break
            if step.kind == "D":
                tree.setdefault(step.thing, {})
            if not 0 <= step.certain < moment and not choose(step):
                continue
            here = tree.setdefault(step.folder, {})
            if step.kind in "CD":
                here[step.name] = step.thing
            elif here.get(step.name) == step.thing:
                del here[step.name]
            if step.kind == "N":
                tree.setdefault(step.to_folder, {})[step.to_name] = step.thing
        return tree

    def _content_at(self, number: int, moment: int, keep: abc.Callable[[Step, int], bool]) -> bytes:
        thing = self.things[number]
        _, used, start = max(one for one in thing.settled if one[0] < moment)
        content = bytearray(start)
        for step in thing.steps[used:]:
            if step.number >= moment:
                break
            if step.certain < moment:
                _apply(content, step)
            elif step.kind != "W":
                if keep(step, 0):
                    _apply(content, step)
            else:
                _apply_torn(content, step, keep)
        return bytes(content)

    def _collect(
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


def _choose_names(chance: random.Random) -> tuple[abc.Callable[[Step], bool], str]:
    how = chance.choice(["lost", "kept", "by chance", "in order"])
    if how == "lost":
        return lambda step: False, how
    if how == "kept":
        return lambda step: True, how
    if how == "by chance":
        share = chance.choice([0.1, 0.5, 0.9])
        return lambda step: chance.random() < share, f"{share:.0%}"
    stopped: dict[int, bool] = {}

    def in_order(step: Step) -> bool:
        folders = {step.folder, step.to_folder} - {0}
        for folder in folders:
            if not stopped.get(folder, False):
                stopped[folder] = chance.random() < 0.4
        return not any(stopped[folder] for folder in folders)

    return in_order, how


def _choose_bytes(
    chance: random.Random, trace: Trace, moment: int
) -> tuple[abc.Callable[[Step, int], bool], str]:
    """keep(step, byte offset of a sector) for everything that is not certain."""
    how = chance.choice(
        ["lost", "kept", "steps", "sectors", "sectors", "pages", "until", "one lost", "one kept"]
    )
    if how == "lost":
        return lambda step, at: False, how
    if how == "kept":
        return lambda step, at: True, how
    if how == "until":
        until = chance.randrange(max(0, moment - 40), moment + 1)
        return lambda step, at: step.number < until or chance.random() < 0.2, f"until {until}"
    if how in ("one lost", "one kept"):
        one = chance.choice(list(trace.things))
        return lambda step, at: (step.thing == one) is (how == "one kept"), f"{how} {one}"
    share = chance.choice([0.1, 0.5, 0.9])
    unit = {"steps": 1 << 40, "sectors": 512, "pages": PAGE_BYTES}[how]
    chosen: dict[tuple[int, int], bool] = {}

    def by_chance(step: Step, at: int) -> bool:
        place = step.number, at // unit
        if place not in chosen:
            chosen[place] = chance.random() < share
        return chosen[place]

    return by_chance, f"{how} {share:.0%}"


def _put(content: bytearray, offset: int, raw: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(raw)] = raw


def _set_length(content: bytearray, length: int, *, grow_only: bool) -> None:
    if len(content) < length:
        content.extend(bytes(length - len(content)))
    elif not grow_only:
        del content[length:]


def _apply(content: bytearray, step: Step) -> None:
    if step.kind == "W":
        _put(content, step.offset, step.bytes)
    else:
        _set_length(content, step.offset, grow_only=step.kind == "E")


def _apply_torn(content: bytearray, step: Step, keep: abc.Callable[[Step, int], bool]) -> None:
    end = step.offset + len(step.bytes)
    at = step.offset
    while at < end:
        following = min(end, at - at % 512 + 512)
        if keep(step, at):
            _put(content, at, step.bytes[at - step.offset : following - step.offset])
        at = following


def read_folder(root: Path) -> tuple[Image, dict[int, str]]:
    """Everything below a folder, and the inode of each."""
    image: Image = {}
    inodes: dict[int, str] = {root.stat().st_ino: ""}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        image[name] = None if path.is_dir() else path.read_bytes()
        inodes[path.stat().st_ino] = name
    return image, inodes


def pages_of(root: Path) -> bytes:
    """Records of all pages as they are now; those that were recorded before change nothing."""
    records = []
    for path in sorted(root.rglob("*")):
        if path.is_file():
            content, inode = path.read_bytes(), path.stat().st_ino
            for at in range(0, len(content), PAGE_BYTES):
                page = content[at : at + PAGE_BYTES]
                records.append(RECORD.pack(ord("S"), 0, inode, at, len(page), len(page)) + page)
    return b"".join(records)


def write_folder(image: Image, root: Path) -> None:
    """The files of an image, in a new folder."""
    root.mkdir(parents=True)
    for name in sorted(image):
        content = image[name]
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)
