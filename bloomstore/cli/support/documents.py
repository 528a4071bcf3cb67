"""What `ls --json` and `info --json` say of a filter: its stats as plain values.

Field names are those of FilterStats and StageStats, so that the two do not drift apart.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bloomstore import FilterStats


def filter_document(stats: FilterStats) -> dict[str, Any]:
    """The stats of a filter for JSON, spec and state in their plain forms."""
    spec = stats.spec.to_dict()
    fields = asdict(stats) | {
        "spec": spec,
        "state": stats.state.name.value,
        "reason": stats.state.reason,
    }
    return {"name": fields.pop("name"), "family": spec["family"]} | fields
