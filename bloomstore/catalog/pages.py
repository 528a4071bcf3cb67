"""Reading data.mdb without LMDB: whether every page is what LMDB takes for granted.

In: the file of a catalog that no process has open, out: its last commit, or DamagedFile. LMDB has
no checksums: a flipped bit in one of its pages hides rows, or ends the process. So an opener that
is alone walks the whole tree first, by plain reads:

  1. both meta pages are sane, and their transactions are neighbours, each on its own page;
  2. every page is reached once, has its own number, and its nodes fill it without gap or overlap;
  3. keys are in order, also across pages and between the keys of their branches;
  4. every table has as many rows, pages and levels as its record says;
  5. no page is in use and free, and the newest entry of the free list is of the last commit.

Rows have checksums, which are compared when they are read (frames.py, view.py). Not found here: an
older state of the whole file, which only a witness outside it can show (witness.py).
py-lmdb has such a walk too (lmdb.verify), in twice the time and without the keys of branches.

Format of LMDB 0.9, 64 bits, in the byte order of the machine.
"""

from __future__ import annotations

import operator
import os
import struct
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, NoReturn

from bloomstore.errors import DamagedFile, UnsupportedVersion
from bloomstore.segment.mapping import open_file

DATA_VERSION = 1  # of LMDB 0.9; LMDB 1.0 writes 3
_MAGIC = 0xBEEFC0DE
_NO_PAGE = (1 << 64) - 1
_BRANCH, _LEAF, _LONG, _META = 1, 2, 4, 8  # kinds of pages
_IS_LONG, _IS_TABLE = 1, 2  # flags of rows: the value has pages of its own, is a table
_INTEGER_KEYS = 8  # flag of the free list
_SMALLEST_PAGE, _LARGEST_PAGE = 512, 1 << 15
LARGEST_MAP = 1 << 45  # the most that a meta page, or `open`, may ask for

_PAGE = struct.Struct("=Q2xHHH")  # number, kind, end of the pointers, begin of the nodes
_LONG_PAGE = struct.Struct("=Q2xHI")  # number, kind, pages
_NODE = struct.Struct("=HHHH")  # size low, size high, flags, key size; or the number of a page
_TREE = struct.Struct("=IHHQQQQQ")  # pad, flags, depth, branches, leaves, long pages, rows, root
_META_PAGE = struct.Struct("=IIQQ48s48sQQ")  # magic, version, address, map, trees, last page, txn
_HEAD = _PAGE.size
_NEWER_HEAD = 24  # of the pages of LMDB 1.0
_MARK = _MAGIC.to_bytes(4, sys.byteorder)
_IS_LITTLE = sys.byteorder == "little"

_ADVICE = (
    "put the store's folder back from a backup, or make the store anew and rebuild its filters from"
    " their sources"
)

_Node = tuple[bytes, int, int, int]  # key, size of the value or child, flags, begin of the value


def walk(path: Path) -> int:
    """Walks data.mdb and returns the number of its last commit. Only for an opener that is alone.

    Raises DamagedFile or UnsupportedVersion.
    """
    try:
        descriptor = open_file(path, os.O_RDONLY)
        try:
            return _Walk(path, descriptor).walk()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DamagedFile(path, 0, f"cannot be read: {error.strerror}") from error


def _damaged(path: Path, offset: int, what: str) -> DamagedFile:
    return DamagedFile(path, offset, what, _ADVICE)


class _Meta(NamedTuple):
    transaction: int
    page_bytes: int
    last_page: int
    free: tuple[int, ...]
    main: tuple[int, ...]


@dataclass(slots=True)
class _Tree:
    """One tree and what was counted in it so far."""

    name: str
    depth: int
    kind: int  # flags of its rows
    taken: dict[bytes, bytes] | None  # its rows, if they are wanted
    has_integers: bool
    branches: int = 0
    leaves: int = 0
    long_pages: int = 0
    rows: int = 0


class _Walk:
    """One walk through an open file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._page_bytes = 0
        self._meta = self._newest_meta()
        pages, self._page_bytes = self._meta.last_page + 1, self._meta.page_bytes
        length = os.fstat(descriptor).st_size
        if length < pages * self._page_bytes:
            what = f"file ends here, its meta page says {pages * self._page_bytes} bytes"
            raise _damaged(path, length, what)
        self._used = bytearray(pages)
        self._used[:2] = b"\1\1"

    def walk(self) -> int:
        free = self._tree("free list", self._meta.free, _INTEGER_KEYS, taken={})
        tables = self._tree("list of tables", self._meta.main, kind=_IS_TABLE, taken={})
        for name, record in tables.items():
            table = name.decode(errors="replace")
            if len(record) != _TREE.size:
                self._fail(0, f"the record of {table} has {len(record)} bytes")
            self._tree(table, _TREE.unpack(record))
        self._check_free({int.from_bytes(key, "big"): value for key, value in free.items()})
        return self._meta.transaction

    def _tree(
        self,
        name: str,
        record: tuple[int, ...],
        flags: int = 0,
        *,
        kind: int = 0,
        taken: dict[bytes, bytes] | None = None,
    ) -> dict[bytes, bytes]:
        """Walks a tree with these flags and rows of this kind; the rows, if they are wanted."""
        _, found_flags, depth, *expected, root = record
        if found_flags != flags:
            self._fail(0, f"{name} has flags {found_flags}, expected {flags}")
        tree = _Tree(name, depth, kind, taken, has_integers=flags == _INTEGER_KEYS)
        if root != _NO_PAGE:
            self._below(tree, root, 1, None, None)
        found = [tree.branches, tree.leaves, tree.long_pages, tree.rows]
        if found != expected:
            what = f"{name} has {found} branches, leaves, long pages, rows"
            self._fail(0, f"{what}, its record says {expected}")
        return {} if taken is None else taken

    def _below(
        self, tree: _Tree, number: int, level: int, low: bytes | None, high: bytes | None
    ) -> None:
        """Walks a page and what is below it: keys from `low` on and less than `high`."""
        data = self._take(number)
        is_leaf = level == tree.depth
        found, kind, lower, upper = _PAGE.unpack_from(data)
        if found != number or kind != (_LEAF if is_leaf else _BRANCH):
            self._fail(number, f"is not a page of {tree.name}, level {level}")
        nodes = self._nodes(number, data, lower, upper, is_leaf=is_leaf)
        keys = [node[0] for node in nodes]
        if tree.has_integers and _IS_LITTLE:
            keys = [key[::-1] for key in keys]
        bounds = keys if is_leaf else keys[1:]  # the first key of a branch means nothing
        if (
            not all(map(operator.lt, bounds, bounds[1:]))
            or (low is not None and bounds and bounds[0] < low)
            or (high is not None and bounds and bounds[-1] >= high)
        ):
            self._fail(number, f"keys of {tree.name} are not in order")
        if is_leaf:
            tree.leaves += 1
            tree.rows += len(nodes)
            self._leaf(tree, number, data, keys, nodes)
            return
        tree.branches += 1
        for node, (begin_key, end_key) in zip(nodes, pairwise([low, *bounds, high]), strict=True):
            self._below(tree, node[1], level + 1, begin_key, end_key)

    def _leaf(
        self, tree: _Tree, number: int, data: bytes, keys: list[bytes], nodes: list[_Node]
    ) -> None:
        """Takes the pages of long values, and the rows if they are wanted."""
        for key, (_, size, flags, begin) in zip(keys, nodes, strict=True):
            if flags & ~_IS_LONG != tree.kind:
                self._fail(number, f"a row of {tree.name} has flags {flags}")
            if flags & _IS_LONG:
                value = self._long_value(tree, data, begin, size)
            elif tree.taken is not None:
                value = data[begin : begin + size]
            if tree.taken is not None:
                tree.taken[key] = value

    def _nodes(
        self, number: int, data: bytes, lower: int, upper: int, *, is_leaf: bool
    ) -> list[_Node]:
        """Key, size or child, flags and begin of the value; together they fill the page."""
        if not _HEAD < lower <= upper or lower & 1:
            self._fail(number, "page has no room for its nodes")
        starts = struct.unpack_from(f"={(lower - _HEAD) // 2}H", data, _HEAD)
        nodes, ends = [], []
        if max(starts) <= len(data) - _NODE.size:
            for start in starts:
                low, high, flags, key_size = _NODE.unpack_from(data, start)
                end = begin = start + _NODE.size + key_size
                size = low | high << 16
                if is_leaf:
                    end += 8 if flags & _IS_LONG else size
                else:
                    size |= flags << 32
                nodes.append((data[start + _NODE.size : begin], size, flags, begin))
                ends.append(end + 1 & ~1)
            ends.sort()
        if not ends or sorted(starts) != [upper, *ends[:-1]] or ends[-1] != len(data):
            self._fail(number, "nodes of the page overlap, leave it, or leave a gap")
        return nodes

    def _long_value(self, tree: _Tree, data: bytes, begin: int, size: int) -> bytes:
        """A value that has pages of its own."""
        number = int.from_bytes(data[begin : begin + 8], sys.byteorder)
        count = (_HEAD - 1 + size) // self._page_bytes + 1
        tree.long_pages += count
        # The first page of a table's long row is enough; the journal may have many of them.
        data = self._take(number, count, 1 if tree.taken is None else count)
        if _LONG_PAGE.unpack_from(data) != (number, _LONG, count):
            self._fail(number, f"is not a value of {size} bytes")
        return data[_HEAD : _HEAD + size]

    def _take(self, number: int, count: int = 1, read: int = 1) -> bytes:
        """Takes pages that no other part may have, and reads the first `count` of them."""
        used = self._used
        if not 2 <= number <= len(used) - count:
            self._fail(0, f"page {number} lies outside the file")
        if any(used[number : number + count]):
            self._fail(number, "page is used twice")
        used[number : number + count] = b"\1" * count
        size = read * self._page_bytes
        data = os.pread(self._descriptor, size, number * self._page_bytes)
        if len(data) != size:
            self._fail(number, "file ends here")
        return data

    def _check_free(self, free: dict[int, bytes]) -> None:
        last = max(free, default=self._meta.transaction)
        if last != self._meta.transaction:
            what = f"the free list ends with transaction {last}"
            self._fail(0, f"{what}, the last commit is {self._meta.transaction}")
        for transaction, value in free.items():
            where = f"the free list of transaction {transaction}"
            if len(value) < 8 or len(value) % 8:
                self._fail(0, f"{where} has {len(value)} bytes")
            count, *pages = struct.unpack(f"={len(value) // 8}Q", value)
            del pages[count:]
            if len(pages) != count or sorted(set(pages), reverse=True) != pages:
                self._fail(0, f"{where} is not in order")
            if pages and not 2 <= pages[-1] <= pages[0] < len(self._used):
                self._fail(0, f"{where} leaves the file")
            for page in pages:
                if self._used[page]:
                    self._fail(page, f"page is in use, and in {where}")
                self._used[page] = 1

    def _fail(self, page: int, what: str) -> NoReturn:
        raise _damaged(self._path, page * self._page_bytes, what)

    def _newest_meta(self) -> _Meta:
        """The meta page of the last commit. The first one says how long a page is."""
        first = self._read_meta(0, 0)
        second = self._read_meta(1, first.page_bytes)
        numbers = first.transaction, second.transaction
        if second.page_bytes != first.page_bytes:
            self._fail(0, f"pages have {first.page_bytes} bytes, or {second.page_bytes}")
        is_placed = all(number & 1 == page for page, number in enumerate(numbers) if number)
        if any(numbers) and (abs(numbers[0] - numbers[1]) != 1 or not is_placed):
            self._fail(0, f"the meta pages have transactions {numbers}, expected neighbours")
        return first if numbers[0] >= numbers[1] else second

    def _read_meta(self, page: int, offset: int) -> _Meta:
        data = os.pread(self._descriptor, _HEAD + _META_PAGE.size, offset)
        if len(data) < _HEAD + _META_PAGE.size:
            what = "too short for an LMDB meta page"
            raise _damaged(self._path, offset + len(data), what)
        fields = _META_PAGE.unpack_from(data, _HEAD)
        magic, version, _, map_bytes, free, main, last_page, transaction = fields
        if magic != _MAGIC:
            if data[_NEWER_HEAD:].startswith(_MARK):
                newer = int.from_bytes(data[_NEWER_HEAD + 4 : _NEWER_HEAD + 8], sys.byteorder)
                what = "data format of LMDB, where 1 is that of LMDB 0.9 and 3 that of LMDB 1.0:"
                raise UnsupportedVersion(self._path, newer, DATA_VERSION, what)
            raise _damaged(self._path, offset + _HEAD, "no LMDB meta page")
        size, *_ = tree = _TREE.unpack(free)
        is_sane = (
            _PAGE.unpack_from(data)[:2] == (page, _META)
            and version == DATA_VERSION
            and _SMALLEST_PAGE <= size <= _LARGEST_PAGE
            and not size & (size - 1)
            and map_bytes <= LARGEST_MAP
            and last_page >= 1
        )
        if not is_sane:
            raise _damaged(self._path, offset, "the meta page makes no sense")
        return _Meta(transaction, size, last_page, tree, _TREE.unpack(main))
