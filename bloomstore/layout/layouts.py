"""Every layout, found by its code or its name; a new layout is listed here and nowhere else."""

from __future__ import annotations

from typing import Literal

from bloomstore.layout.blocked import BlockedGeometry
from bloomstore.layout.contract import Geometry, LayoutCode, SchemeCode
from bloomstore.layout.plain import PlainGeometry
from bloomstore.layout.sliced import SlicedGeometry

Layout = Literal["plain", "sliced", "blocked"]
Scheme = Literal["spread", "h3"]

LAYOUTS: dict[LayoutCode, type[Geometry]] = {
    kind.layout: kind for kind in (PlainGeometry, SlicedGeometry, BlockedGeometry)
}
BY_NAME: dict[str, type[Geometry]] = {kind.name(): kind for kind in LAYOUTS.values()}
SCHEMES: dict[str, SchemeCode] = {code.name.lower(): code for code in SchemeCode}


def geometry_of(layout: int, scheme: int, slice_bits: int, hashes: int) -> Geometry:
    """The geometry with these numbers, as they were read from somewhere.

    Raises ValueError for a code that no layout or scheme has, SpecError for other impossible ones.
    """
    kind = LAYOUTS[LayoutCode(layout)]
    return kind(scheme=SchemeCode(scheme), slice_bits=slice_bits, hashes=hashes)
