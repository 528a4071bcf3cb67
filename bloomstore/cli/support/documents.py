"""JSON on standard output, and the stats of a filter as a document of plain values.

Field names are those of FilterStats and StageStats, so that the two do not drift apart.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any, TextIO

from bloomstore import FilterStats


def print_json(document: object, out: TextIO, *, indent: int | None = 2) -> None:
    """Prints a JSON document; numbers that JSON does not have become null."""
    print(json.dumps(_finite(document), indent=indent, allow_nan=False, default=str), file=out)


def filter_document(stats: FilterStats) -> dict[str, Any]:
    """The stats of a filter for `ls --json` and `info --json`."""
    fields = asdict(stats) | {
        "spec": stats.spec.to_dict(),
        "state": stats.state.name.value,
        "reason": stats.state.reason,
    }
    return {"name": fields.pop("name"), "family": stats.spec.family} | fields


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value
