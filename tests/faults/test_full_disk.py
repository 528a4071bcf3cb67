"""A full disk, and a disk that refuses: a clear error, nothing lost, and it works again afterwards.

Three ways to make a disk refuse: a limit on the size of files, small file systems that are really
full (as root), and a library that makes the n-th call fail, for every n that a short life of a
store has (some of them by default, `-m slow` for all). In each of them:

  1. every error is a StoreFailed that names a file of the store;
  2. acknowledged keys are found while the disk refuses, by the same process and by others;
  3. once it takes writes again, the same process and new ones add keys, and `check` is silent;
  4. no file is left that the catalog does not name; nobody dies of SIGBUS.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import bloomstore
from tests.faults.refused_life import SPECS, SYNC_FAILED, run
from tests.powerloss.device import failing


def assert_well(lines: list[dict[str, object]], *, refused: bool = True) -> None:
    """Nothing was wrong, and the disk did refuse."""
    wrong = [line for line in lines if line.get("wrong")]
    assert not wrong, json.dumps(wrong[:3], indent=1)
    if refused:
        assert any(line.get("errors") for line in lines), "the disk never refused anything"


CALLS = [
    ("write", errno.ENOSPC, "data.mdb", "on"),
    ("write", errno.ENOSPC, "data.mdb", "once"),
    ("commit", errno.EIO, "data.mdb", "once"),
    ("write", errno.EIO, ".seg", "once"),
    ("allocate", errno.ENOSPC, "", "on"),
    ("allocate", errno.ENOSPC, "", "once"),
    ("sync", errno.EIO, "data.mdb", "once"),
    ("sync", errno.EIO, ".seg", "once"),
    ("sync", errno.EIO, "segments", "once"),
    ("sync", errno.EIO, "", "on"),
    ("msync", errno.EIO, ".seg", "once"),
    ("msync", errno.EIO, ".seg", "on"),
    ("open", errno.EMFILE, ".seg", "once"),
    ("rename", errno.ENOSPC, "", "once"),
    ("mkdir", errno.ENOSPC, "", "once"),
    ("unlink", errno.EIO, "", "once"),
]


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("call", "error", "part", "how"),
    CALLS,
    ids=[f"{call} {errno.errorcode[error]} {part} {how}" for call, error, part, how in CALLS],
)
def test_every_call_may_fail(
    tmp_path: Path, call: str, error: int, part: str, how: str, which: str
) -> None:
    variables = failing(tmp_path, skip_syncs=True)
    lines = run("every_call", tmp_path, call, str(error), part, how, which, variables=variables)
    assert_well(lines, refused=False)
    assert lines[-1]["tried"] > 1, "there was no such call"


def test_the_store_goes_on_after_lmdb_has_given_up(tmp_path: Path) -> None:
    assert_well(run("given_up", tmp_path, variables=failing(tmp_path, skip_syncs=True)))


@pytest.mark.parametrize("limit", [60_000, 150_000])
def test_a_limit_on_the_size_of_files_is_a_clear_error(tmp_path: Path, limit: int) -> None:
    assert_well(run("limited", tmp_path, str(limit)))


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_file_system_is_a_clear_error(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with mounted(tmp_path, kind, capsys) as folder:
        lines = run("full", folder)
        assert_well(lines)
        for line in lines:
            assert_well(line.get("others", []), refused=False)


@contextlib.contextmanager
def mounted(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> abc.Iterator[Path]:
    """A file system of four megabytes; skips, loudly, where it cannot be made."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", kind]
    if kind == "tmpfs":
        command += ["-o", "size=4M", "tmpfs", str(folder)]
    else:
        disk = tmp_path / "disk"
        disk.write_bytes(bytes(8 << 20))
        make = ["mkfs.ext4", "-q", "-F", str(disk)]
        if shutil.which(make[0]) is None or subprocess.run(make, check=False).returncode:
            give_up(kind, "mkfs.ext4 is missing", capsys)
        command += ["-o", "loop", str(disk), str(folder)]
    if os.geteuid() != 0:
        give_up(kind, "only root may mount it", capsys)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        give_up(kind, done.stderr.strip(), capsys)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def give_up(kind: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Says on the terminal what was not tested."""
    with capsys.disabled():
        print(f"\nNOT TESTED: a full {kind} file system: {why}")
    pytest.skip(f"a full {kind} file system was not tested: {why}")


def test_a_failed_sync_makes_every_process_answer_maybe(path: Path) -> None:
    with bloomstore.open(path) as store:
        for name, (spec, durability) in SPECS.items():
            store.create(name, spec, durability=durability).add_many(["early 1", "early 2"])
    with bloomstore.open(path, read_only=True) as store:
        assert "never added" not in store["growing"]
        said = run("poisoned", path, variables=failing(path))
        assert SYNC_FAILED.removeprefix("a ") in str(said[0]["error"])
        assert ".seg" in str(said[0]["error"])
        assert SYNC_FAILED in str(said[-1]["states"])
        for name in ("growing", "process"):
            keys = ["early 1", "early 2", "late 1", "late 2"]
            assert store[name].may_contain_many(keys).all()
        doubted = [name for name in store if not store[name].state.is_sound]
        assert doubted
        for name in doubted:
            assert "never added" in store[name]  # a reader that was open all the time
    with bloomstore.open(path) as store:
        for name in doubted:
            assert SYNC_FAILED in str(store[name].state)
            assert "never added" in store[name]
            store[name].add("new")
        list(store.repair())
        assert store["growing"].may_contain_many(["early 1", "late 1", "late 2", "new"]).all()
