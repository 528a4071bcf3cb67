"""The command line: the parser of all commands, errors and exit statuses.

In: arguments, out: text on standard output, an exit status, and at most one line on standard
error. A command is a module of commands/ with HELP, EXAMPLES, configure(parser) and
run(args, out) -> status; it calls only functions that a Python program can call too.

    status  0    done, yes
            1    a "no" that is an answer: absent, problems found, not confirmed
            2    an error, or arguments that make no sense
            130  interrupted;  141  the reader of the output went away
"""

from __future__ import annotations

import collections.abc as abc
import os
import sys
import traceback
import warnings
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Protocol, TextIO

import bloomstore
from bloomstore.cli.commands import (
    add,
    backup,
    check,
    checkpoint,
    create,
    db,
    drop,
    follow,
    info,
    ls,
    plan,
    query,
    rebuild,
    repair,
    verify,
)
from bloomstore.errors import BloomStoreError

__all__ = ["COMMANDS", "main", "make_parser"]

DESCRIPTION = "Bloom filters on disk that can be trusted like the database they guard."
EPILOG = """\
An answer "absent" is certain; "maybe" is wrong at most as often as the filter's target error.
`bloomstore COMMAND --help` explains a command and shows examples.
"""


class Command(Protocol):
    """The interface of a command module."""

    HELP: str
    EXAMPLES: str

    def configure(self, parser: ArgumentParser, /) -> None:
        """Adds the command's arguments."""

    def run(self, args: Namespace, out: TextIO, /) -> int:
        """Does the work and returns the exit status."""


class CommandParser(ArgumentParser):
    """Takes options anywhere: argparse by itself would lose the key in `STORE NAME --null KEY`.

    (It gives `KEY ...` nothing as soon as NAME is followed by an option.)
    """

    _is_inside = False

    def parse_known_args(  # type: ignore[override]
        self, args: abc.Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Parses options first, then positionals from the rest."""
        if self._is_inside:  # the intermixed parser calls this for each of its two passes
            return super().parse_known_args(args, namespace)
        self._is_inside = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_inside = False


COMMANDS: dict[str, Command] = {
    "create": create,
    "add": add,
    "query": query,
    "ls": ls,
    "info": info,
    "plan": plan,
    "checkpoint": checkpoint,
    "check": check,
    "repair": repair,
    "rebuild": rebuild,
    "verify": verify,
    "backup": backup,
    "drop": drop,
    "db": db,
    "follow": follow,
}


def make_parser() -> ArgumentParser:
    """The parser with every command in it."""
    parser = ArgumentParser(
        prog="bloomstore",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"bloomstore {bloomstore.__version__}"
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for name, command in COMMANDS.items():
        part = commands.add_parser(
            name,
            help=command.HELP,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
            epilog=f"examples:\n{command.EXAMPLES}",
            formatter_class=RawDescriptionHelpFormatter,
        )
        command.configure(part)
    return parser


def main(argv: abc.Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; raises nothing."""
    _open_missing_streams()
    try:
        args = make_parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed the error or the help
        return end.code if isinstance(end.code, int) else 2
    _escape_what_cannot_be_printed(sys.stdout)
    command: Command = COMMANDS[args.command]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        status = _run(command, args)
    for warning in warned:
        if issubclass(warning.category, UserWarning):
            _complain(f"warning: {warning.message}")
    return status


def _run(command: Command, args: Namespace) -> int:
    try:
        status = command.run(args, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_output()
        return 141
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "interrupted")
        return 130
    except BloomStoreError as error:
        _complain(str(error))
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        _complain(f"{where}{error.strerror or error}")
        return 2
    except Exception:  # noqa: BLE001  a defect must not look like the answer "absent"
        traceback.print_exc()
        return 2
    return status


def _complain(message: str) -> None:
    print("bloomstore:", " ".join(message.splitlines()), file=sys.stderr)


def _escape_what_cannot_be_printed(out: TextIO) -> None:
    """Lets keys in letters that the output's encoding lacks come out escaped, not as an error."""
    reconfigure = getattr(out, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _open_missing_streams() -> None:
    """Replaces standard streams that the parent process has closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  stays open
            setattr(sys, name, stream)


def _close_output() -> None:
    """Discards buffered output, about which Python would complain at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except OSError:
        return
