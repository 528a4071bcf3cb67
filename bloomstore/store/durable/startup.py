"""The beginning of every use of a store: its files are opened and brought up to the catalog.

An opener that is alone recovers everything; a later one only finishes what is unfinished
(recovery.py). A catalog that was rolled back, or cannot be read, puts the store in doubt, and
nothing is changed.
"""

from __future__ import annotations

from bloomstore.catalog import upgrade
from bloomstore.errors import DamagedRow
from bloomstore.store.durable import recovery, stage_files
from bloomstore.store.options import StoreOptions
from bloomstore.store.process.folder import Folder
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.words import BOOT


def open_core(folder: Folder, options: StoreOptions) -> Core:
    """Opens the files and finishes what others left. The caller ends the Holding: `end`."""
    core = Core(folder, options)
    if core.is_lost():  # an overlay file system exchanges a file when it is opened for writing
        core.end()
        core = Core(folder, options)
    try:
        core.require_place()
        alone = core.is_alone
        if options.read_only:
            core.doubt = recovery.rollback(core)
            upgrade.bring_up(core.catalog, is_alone=alone, doubt=core.doubt)
        else:
            with core.hold():
                core.catalog.settle()
                core.doubt = recovery.rollback(core)
                upgrade.bring_up(core.catalog, is_alone=alone, doubt=core.doubt)
                if core.doubt is None:
                    _recover(core, completely=alone or core.words[BOOT] != core.boot_word)
        core.users.share()
    except BaseException:
        core.end()
        raise
    return core


def _recover(core: Core, *, completely: bool) -> None:
    """Brings bits and words up to the catalog; a journal that cannot be read is a doubt."""
    try:
        if completely:
            core.folder.sync_name()
            recovery.recover(core)
            stage_files.bury(core)
        else:
            recovery.finish(core)
            recovery.finish_missing(core)
    except DamagedRow as error:
        core.doubt = str(error)
