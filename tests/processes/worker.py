"""Real processes for tests: forked, spoken to over a pipe, ended with their test.

    with Worker(open_and_serve, path) as worker:
        worker.tell("add", 1)
        assert worker.hear() == "done"

A worker is a function whose first argument is its end of the pipe. An exception in the worker is
raised in the test, and a worker that is silent for 30 seconds has failed. Nothing here waits by
sleeping.
"""

from __future__ import annotations

import collections.abc as abc
import ctypes
import multiprocessing
import os
import signal
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import bloomstore
from bloomstore import Durability, Scalable, crash
from bloomstore.errors import BloomStoreError

PATIENCE = 30.0
SPEC = Scalable(target_error=0.01, initial_capacity=64)
PR_SET_PDEATHSIG = 1


class Worker:
    """One forked process and the pipe to it."""

    def __init__(self, work: abc.Callable[..., object], *arguments: Any) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self.process = os.fork()
        if not self.process:
            self._pipe.close()
            _live(work, theirs, arguments)
        theirs.close()
        self.status: int | None = None

    def tell(self, *message: Any) -> None:
        """Sends it something."""
        self._pipe.send(message)

    def hear(self) -> Any:
        """What it says next."""
        if not self._pipe.poll(PATIENCE):
            raise AssertionError("a process says nothing")
        said = self._pipe.recv()
        if isinstance(said, _Failure):
            raise AssertionError(f"in another process:\n{said.text}")
        return said

    def ask(self, *message: Any) -> Any:
        """Sends and hears."""
        self.tell(*message)
        return self.hear()

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        os.kill(self.process, number)

    def end(self) -> int:
        """Waits for its end; its status, negative for a signal."""
        if self.status is None:
            _, status = os.waitpid(self.process, 0)
            self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def kill(self) -> None:
        """kill -9, and waits."""
        if self.status is None:
            self.signal(signal.SIGKILL)
            self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._pipe.close()


class _Failure:
    def __init__(self, text: str) -> None:
        self.text = text


def _live(
    work: abc.Callable[..., object], pipe: Connection, arguments: tuple[Any, ...]
) -> NoReturn:
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        work(pipe, *arguments)
        status = 0
    except BaseException:  # noqa: BLE001  raised again in the test
        pipe.send(_Failure(traceback.format_exc()))
    finally:
        os._exit(status)


def die_at(point: str, time: int = 1) -> None:
    """This process is killed when it comes to this crash point."""
    assert point in crash.POINTS
    crash._wanted = point
    crash._left = time


def serve(pipe: Connection, path: Path, read_only: bool = False, seconds: float = 60.0) -> None:
    """Opens the store and does what it is told: ("add", name, key), ("find", name, keys), ..."""
    store = bloomstore.open(path, read_only=read_only, create=False, lock_seconds=seconds)
    pipe.send("open")
    while True:
        what, *arguments = pipe.recv()
        if what == "end":
            store.close()
            pipe.send("closed")
            return
        try:
            pipe.send(_answer(store, what, arguments))
        except BloomStoreError as error:
            pipe.send(type(error).__name__)


def _answer(store: bloomstore.Store, what: str, arguments: list[Any]) -> object:
    if what == "check":
        return [str(problem) for problem in store.check()]
    if what == "checkpoint":
        return store.checkpoint()
    if what == "die at":
        die_at(*arguments)
        return None
    if what == "drop":
        return store.drop(*arguments)
    if what == "create":
        store.create(arguments[0], SPEC, durability=arguments[1])
        return None
    handle, rest = store[arguments[0]], arguments[1:]
    if what == "add":
        return handle.add(*rest)
    if what == "add many":
        return handle.add_many(*rest)
    if what == "in":
        return [key in handle for key in rest[0]]
    if what == "find":
        return handle.may_contain_many(*rest).tolist()
    if what == "state":
        return str(handle.state.name)
    if what == "keys":
        return handle.stats().keys
    raise ValueError(what)


def open_server(path: Path, *, read_only: bool = False, seconds: float = 60.0) -> Worker:
    """A process that has the store open."""
    worker = Worker(serve, path, read_only, seconds)
    assert worker.hear() == "open"
    return worker


def make_store(path: Path, *durabilities: Durability) -> None:
    """A store with a small filter of each durability, by a process that is gone afterwards."""

    def make(pipe: Connection) -> None:
        with bloomstore.open(path) as store:
            for durability in durabilities:
                store.create(durability, SPEC, durability=durability)

    with Worker(make) as worker:
        assert worker.end() == 0
