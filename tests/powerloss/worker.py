"""Builds and judges images, many per process: `python worker.py TRACE FOLDER`.

In: lines "number moment seed", out: one JSON line each. A worker that dies (a fault of the memory,
a hang) is itself a violation; whoever started it starts another.
"""

from __future__ import annotations

import json
import logging
import pickle
import random
import shutil
import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from powerloss import program, verdict
from powerloss.trace import write_folder


def main(trace_file: Path, folder: Path) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    program.use_boot("the boot after the power cut")
    recording = pickle.loads(trace_file.read_bytes())
    for line in sys.stdin:
        number, moment, seed = line.split()
        image, how = recording.trace.image(int(moment), random.Random(seed))
        root = folder / number
        write_folder(image, root)
        lines = recording.promised_before + recording.trace.acknowledged(int(moment))
        try:
            wrong = verdict.violations(
                root / recording.store,
                verdict.promises(lines),
                any_state=recording.any_state,
            )
        except Exception as error:  # noqa: BLE001  whatever it is, it is a violation
            wrong = [f"{type(error).__name__}: {error}"]
        if not wrong:
            shutil.rmtree(root)
        print(json.dumps({"how": how, "wrong": wrong, "promised": len(lines)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
