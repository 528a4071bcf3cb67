"""Builds and judges images, many per process: `python -m tests.powerloss.worker FOLDER`.

In: lines "recording number moment seed" (the recording is a file); out: one JSON line each. A
worker that dies (a fault of the memory, a hang) is itself a violation, and campaign.py then starts
another one.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
import shutil
import sys
import warnings
from pathlib import Path

from tests.powerloss import program, verdict
from tests.powerloss.folders import write_folder
from tests.powerloss.images import image

BOOT = "the boot after the power cut"


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")  # stores on tmpfs
    logging.disable(logging.CRITICAL)
    program.use_boot(BOOT)
    known, recorded = "", None
    for line in sys.stdin:
        file, number, moment, seed = line.split()
        if file != known:
            known, recorded = file, pickle.loads(Path(file).read_bytes())
        assert recorded is not None
        files, how = image(recorded.trace, int(moment), random.Random(seed))
        root = folder / f"image {number} of {os.getpid()}"
        write_folder(files, root)
        promised = verdict.promises(recorded.promised(int(moment)))
        try:
            wrong = verdict.violations(
                root / recorded.store, promised, after_errors=recorded.after_errors
            )
        except Exception as error:  # noqa: BLE001  whatever it is, it is a violation
            wrong = [f"{type(error).__name__}: {error}"]
        shutil.rmtree(root)
        print(json.dumps({"how": how, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
