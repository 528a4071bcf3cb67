"""The answers of a guard in this process, and the state of its filter, as numbers."""

from __future__ import annotations

from typing import Any

from bloomstore.sql.guards.guard import ActiveGuard


def stats_of(guard: ActiveGuard) -> dict[str, Any]:
    """The numbers of one guard; `stale` is the share of its keys that a rebuild would remove."""
    record = guard.record()
    keys = guard.with_filter(lambda found: found.stats()).keys
    deleted = record.deleted + guard.metrics.deleted
    return {
        "state": guard.why_unknown() or "valid",
        **guard.metrics.summary(),
        "target_error": guard.filter.spec.target_error,
        "rows_when_built": record.rows,
        "deleted_since": deleted,
        "keys": keys,
        "stale": deleted / keys if keys else 0.0,  # share of keys whose rows are deleted
    }
