"""Random damage to the files of a closed store: no acknowledged key may ever be a "no".

Each case copies a sound store, damages one to three places of the copy, and lets fresh processes
read it, read-only and read-write. An error of the package counts as no answer. The promise is
broken by a lost key, by a process that dies, and by damage to a vector that goes unnoticed.
"""

from __future__ import annotations

import collections.abc as abc
import logging
import os
import random
import shutil
import time
import traceback
from functools import partial
from pathlib import Path

import lmdb

from bloomstore.errors import BloomStoreError
from bloomstore.segment.header import HEADER_BYTES
from bloomstore.segment.segment import read_header
from tests.faults.damage import damage_row, flip_byte, make_store, read, zero_run


def torture(folder: Path, cases: int, seed: int, seconds: float) -> bool:
    """Runs the cases and prints; True when the promise was kept."""
    sound = folder / "sound"
    wrong = _in_a_process(lambda: _make(sound))
    if wrong:
        print("VIOLATION", *wrong)
        return False
    logging.disable()  # a warning for each damage, and that is what is wanted
    kinds: dict[str, list[int]] = {}
    broken: list[str] = []
    begin = last = time.monotonic()
    done = 0
    while done < cases and time.monotonic() < begin + seconds and len(broken) < 20:
        path = folder / f"case {done}"
        shutil.copytree(sound, path)
        names = _names(seed, done)
        wrong = _in_a_process(partial(_one_case, path, seed, done))
        for name in names:
            counts = kinds.setdefault(name, [0, 0])
            counts[0] += 1
            counts[1] += bool(wrong)
        for line in wrong:
            broken.append(f"seed {seed}, case {done}: {line}")
            print("VIOLATION", broken[-1], flush=True)
        if not wrong:
            shutil.rmtree(path)
        done += 1
        if time.monotonic() > last + 10:
            last = time.monotonic()
            print(
                f"{last - begin:4.0f} s: {done} of {cases} damages, violations {len(broken)}",
                flush=True,
            )
    print(f"{'damage':<28}{'cases':>8}{'violations':>12}")
    for name, (count, bad) in sorted(kinds.items()):
        print(f"{name:<28}{count:>8}{bad:>12}")
    print(f"{'cases':<28}{done:>8}{len(broken):>12}   {time.monotonic() - begin:.0f} s")
    return not broken


def _names(seed: int, number: int) -> list[str]:
    """The damages of a case, rows first: they can be damaged only while there is a catalog."""
    chance = random.Random(f"{seed} {number}")
    names = chance.choices(list(HOW), WEIGHTS, k=chance.choice([1, 1, 1, 2, 3]))
    return sorted(names, key=lambda name: name != "catalog row")


def _one_case(path: Path, seed: int, number: int) -> list[str]:
    """Damages and reads; returns what breaks the promise."""
    chance = random.Random(f"{seed} {number} places")
    before = _bytes_of(path)
    names = _names(seed, number)
    what = "; ".join(_damage(path, name, chance) for name in names)
    must_show = _bytes_of(path) != before
    wrong: list[str] = []
    for read_only in (True, False):
        verdict = read(path, read_only=read_only)
        if verdict.lost:
            wrong.append(f"{what}: {len(verdict.lost)} keys lost, {verdict.lost[:2]}")
        if must_show and not verdict.problems and not verdict.refused:
            wrong.append(f"{what}: nobody noticed, {read_only=}")
    return wrong


def _bytes_of(path: Path) -> dict[str, bytes]:
    """All segments; what `check` must notice is what changed here."""
    return {file.name: file.read_bytes() for file in (path / "segments").glob("*.seg")}


def _damage(path: Path, name: str, chance: random.Random) -> str:
    """Does one damage of this name; says what it was. A file that is gone already stays gone."""
    files = sorted(file for file in (path / "segments").glob("*.seg") if file.is_file())
    try:
        return f"{name}: {HOW[name](path, files, chance)}"
    except GONE as error:
        return f"{name}: not possible any more, {error}"


def _vector_flip(path: Path, files: list[Path], chance: random.Random) -> str:
    victim = chance.choice(files)
    return flip_byte(victim, chance, HEADER_BYTES, _end_of_vector(victim))


def _vector_zeros(path: Path, files: list[Path], chance: random.Random) -> str:
    victim = chance.choice(files)
    return zero_run(victim, chance, HEADER_BYTES, _end_of_vector(victim))


def _end_of_vector(victim: Path) -> int:
    """What follows, up to the end of the page, means nothing."""
    return HEADER_BYTES + read_header(victim).spec.geometry.vector_bytes


def _header_flip(path: Path, files: list[Path], chance: random.Random) -> str:
    return flip_byte(chance.choice(files), chance, 0, HEADER_BYTES)


def _cut(path: Path, files: list[Path], chance: random.Random) -> str:
    victim = chance.choice(files)
    length = chance.randrange(victim.stat().st_size)
    os.truncate(victim, length)
    return f"{victim.name} cut to {length}"


def _lengthen(path: Path, files: list[Path], chance: random.Random) -> str:
    victim = chance.choice(files)
    with victim.open("ab") as file:
        file.write(bytes(chance.choice([1, 512, 4096])))
    return victim.name


def _remove(path: Path, files: list[Path], chance: random.Random) -> str:
    victim = chance.choice(files)
    victim.unlink()
    return victim.name


def _swap(path: Path, files: list[Path], chance: random.Random) -> str:
    first, second = chance.sample(files, 2)
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    return f"{first.name} and {second.name}"


def _row(path: Path, files: list[Path], chance: random.Random) -> str:
    return damage_row(path, chance)


def _cut_catalog(path: Path, files: list[Path], chance: random.Random) -> str:
    data = path / "catalog" / "data.mdb"
    length = chance.randrange(data.stat().st_size)
    os.truncate(data, length)
    return f"to {length}"


def _remove_part(path: Path, files: list[Path], chance: random.Random) -> str:
    name = chance.choice(["lock", "users", "segments", "catalog/data.mdb", "catalog/lock.mdb"])
    if name == "segments":
        shutil.rmtree(path / name)
    else:
        (path / name).unlink()
    return name


def _garbage_words(path: Path, files: list[Path], chance: random.Random) -> str:
    words = chance.choice([chance.randbytes(4096), b"\xff" * 4096, bytes(4096)])
    (path / "lock").write_bytes(words)
    return words[:8].hex()


# What can go wrong when an earlier damage has taken away what this one wants to damage.
GONE = (OSError, IndexError, ValueError, BloomStoreError, lmdb.Error)
HOW = {
    "vector, byte changed": _vector_flip,
    "vector, run zeroed": _vector_zeros,
    "header, byte changed": _header_flip,
    "segment cut": _cut,
    "segment lengthened": _lengthen,
    "segment removed": _remove,
    "segments swapped": _swap,
    "catalog row": _row,
    "catalog cut": _cut_catalog,
    "file or folder removed": _remove_part,
    "words of garbage": _garbage_words,
}
OFTEN = {"vector, byte changed": 4, "vector, run zeroed": 4, "catalog row": 6}
WEIGHTS = [OFTEN.get(name, 1) for name in HOW]


def _make(path: Path) -> list[str]:
    make_store(path)
    return []


def _in_a_process(work: abc.Callable[[], list[str]]) -> list[str]:
    """What it returns, from a process of its own: damaged files may end the one that maps them."""
    pipe, pipe_in = os.pipe()
    process = os.fork()
    if not process:
        status = 1
        try:
            lines = work()
            os.write(pipe_in, "\n".join(lines).encode()[:60_000])
            status = 0
        except BaseException:  # noqa: BLE001  counted as a violation
            os.write(pipe_in, traceback.format_exc()[-3000:].replace("\n", " | ").encode())
        finally:
            os._exit(status)
    os.close(pipe_in)
    with os.fdopen(pipe, encoding="utf-8") as file:
        lines = file.read().splitlines()
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return lines if code == 0 else [*lines, f"a process ended with status {code}"]
