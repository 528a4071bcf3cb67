"""The states that a power cut may leave a disk in.

In: a trace, a moment and chance; out: files. Everything that is certain at the moment is there. The
rest is there or not, as chance says, in one of several manners: all, nothing, by steps, by sectors
or pages, until a step, one file only.
"""

from __future__ import annotations

import collections.abc as abc
import random

from tests.powerloss.folders import PAGE_BYTES, Image
from tests.powerloss.trace import Step, Trace, apply, put

Tree = dict[int, dict[str, int]]


def image(trace: Trace, moment: int, chance: random.Random) -> tuple[Image, str]:
    """One legal state of the disk if the power fails before this step, and how it was made."""
    names, how_names = _choose_names(chance)
    keep, how_bytes = _choose_bytes(chance, trace, moment)
    files = trace.collect(
        _tree_at(trace, moment, names), lambda thing: _content_at(trace, thing, moment, keep)
    )
    return files, f"names {how_names}, bytes {how_bytes}"


def _tree_at(trace: Trace, moment: int, choose: abc.Callable[[Step], bool]) -> Tree:
    tree = {folder: dict(names) for folder, names in trace.start_tree.items()}
    for step in trace.names:
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


def _content_at(
    trace: Trace, number: int, moment: int, keep: abc.Callable[[Step, int], bool]
) -> bytes:
    thing = trace.things[number]
    _, used, start = max(one for one in thing.settled if one[0] < moment)
    content = bytearray(start)
    for step in thing.steps[used:]:
        if step.number >= moment:
            break
        if step.certain < moment:
            apply(content, step)
        elif step.kind != "W":
            if keep(step, 0):
                apply(content, step)
        else:
            _apply_torn(content, step, keep)
    return bytes(content)


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


def _apply_torn(content: bytearray, step: Step, keep: abc.Callable[[Step, int], bool]) -> None:
    end = step.offset + len(step.bytes)
    at = step.offset
    while at < end:
        following = min(end, at - at % 512 + 512)
        if keep(step, at):
            put(content, at, step.bytes[at - step.offset : following - step.offset])
        at = following
