"""Specs from their plain form, as catalog rows have it; FilterSpec.to_dict is the way there.

The table of families is here: a new family is listed in it, and nowhere else in this room.
"""

from __future__ import annotations

import collections.abc as abc
from typing import Any

from bloomstore.errors import SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.families.dynamic import Dynamic
from bloomstore.families.expansion import expansion_from_dict
from bloomstore.families.fixed import Fixed
from bloomstore.families.flexible import Flexible
from bloomstore.families.scalable import Scalable

FAMILIES: dict[str, type[FilterSpec]] = {
    kind.family: kind for kind in (Fixed, Scalable, Dynamic, Flexible)
}


def spec_from_dict(plain: abc.Mapping[str, Any]) -> FilterSpec:
    """Inverse of FilterSpec.to_dict. Raises SpecError for anything else."""
    fields = dict(plain)
    family = FAMILIES.get(str(fields.pop("family", None)))
    if family is None:
        raise SpecError(f"unknown filter family {plain.get('family')!r}")
    if isinstance(fields.get("expansion"), dict):
        fields["expansion"] = expansion_from_dict(fields["expansion"])
    try:
        return family(**fields)
    except TypeError as error:
        raise SpecError(f"{plain.get('family')}: {error}") from None
