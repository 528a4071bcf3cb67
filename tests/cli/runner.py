"""Runs the command line inside the test's process, with its streams caught."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from bloomstore.cli.main import main


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal(io.TextIOWrapper):
    """A text stream that says it is a terminal."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        written = self.buffer.getvalue()  # type: ignore[attr-defined]
        return written.decode()


class Cli:
    """`cli("ls", store)` is `bloomstore ls STORE`, with an empty standard input."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *argv: object, stdin: bytes | io.TextIOWrapper = b"") -> Result:
        if isinstance(stdin, bytes):
            stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        self._monkeypatch.setattr(sys, "stdin", stdin)
        self._capsys.readouterr()
        status = main([str(argument) for argument in argv])
        caught = self._capsys.readouterr()
        return Result(status, caught.out, caught.err)

    def ok(self, *argv: object, stdin: bytes = b"") -> Result:
        """The same for what must succeed and have nothing to complain of."""
        result = self(*argv, stdin=stdin)
        assert result.err == ""
        assert result.status == 0
        return result
