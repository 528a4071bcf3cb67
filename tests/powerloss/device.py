"""The library device.c under a process: it records its file operations, or makes some fail.

In: a folder and the name of a log, out: an environment for a process (`recording`, `failing`), and
afterwards the log. The library is C, compiled once per test run and loaded before libc, because
LMDB and the kernel's own page cache are out of Python's sight: it sees open, write, fsync, rename
and so on of everything in the process, and compares the pages of shared mappings with a copy of
its own at each of these moments, so that a bit set in memory is in the log before the next step.

Syncs are recorded and not passed on: nothing here needs a real device to be slow.

    environment     meaning
    DEVICE_ROOT     the folder that counts; nothing else is recorded and nothing else fails
    DEVICE_LOG      the log, outside of the folder; none means: record nothing
    DEVICE_ACKS     writes to this file are acknowledgements, in their exact order
    DEVICE_FAULTS   "call:error:n:part,..." makes the n-th such call fail whose path contains the
                    part ("n+": from then on); an error of 0 kills the process instead. Calls are
                    open, write, commit (a write through O_DSYNC), sync, msync, allocate,
                    truncate, rename, unlink, mkdir, mmap

    record in the log: 40 bytes (native order), then a name, then bytes
      kind u8, padding, name length u32, inode u64, offset u64, length u64, bytes u64

Not here: what the records mean for a power cut (trace.py).
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import functools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RECORD = struct.Struct("=B3xIQQQQ")


@dataclass(frozen=True, slots=True)
class Fault:
    """The n-th call of a kind fails whose path contains `part`; error 0 kills the process."""

    call: str
    n: int
    error: int = errno.EIO
    part: str = ""
    from_then_on: bool = False

    def __str__(self) -> str:
        return f"{self.call}:{self.error}:{self.n}{'+' if self.from_then_on else ''}:{self.part}"


@functools.cache
def library() -> Path:
    """The compiled library. Raises RuntimeError where it cannot be made."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("the power-loss tests need a C compiler: no cc or gcc was found")
    if sys.platform != "linux":
        raise RuntimeError("the power-loss tests put a library under libc: Linux only")
    folder = Path(tempfile.mkdtemp(prefix="bloomstore-device-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, made = Path(__file__).with_name("device.c"), folder / "device.so"
    command = [
        *compiler.split(),
        "-shared",
        "-fPIC",
        "-O2",
        "-o",
        str(made),
        str(source),
        "-ldl",
        "-pthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the power-loss library does not compile:\n{done.stderr}")
    return made


class Faults:
    """Faults of the process this is called in, which must have been started by `failing`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def set(self, *faults: Fault) -> None:
        """From now on exactly these calls fail; calls are counted from now on."""
        self._library.device_faults(",".join(map(str, faults)).encode())

    @property
    def fired(self) -> int:
        """How many calls have failed since they were set."""
        return int(self._library.device_fired())


def failing(root: Path, *faults: Fault, skip_syncs: bool = False) -> dict[str, str]:
    """The environment of a process whose calls below `root` fail as told."""
    environment = {
        "LD_PRELOAD": str(library()),
        "DEVICE_ROOT": str(root.resolve()),
        "DEVICE_FAULTS": ",".join(map(str, faults)),
    }
    return environment | ({"DEVICE_SKIP_SYNCS": "1"} if skip_syncs else {})


def recording(root: Path, log: Path, acks: Path, *faults: Fault) -> dict[str, str]:
    """The environment of a process whose calls below `root` are recorded."""
    return failing(root, *faults, skip_syncs=True) | {
        "DEVICE_LOG": str(log.resolve()),
        "DEVICE_ACKS": str(acks.resolve()),
    }
