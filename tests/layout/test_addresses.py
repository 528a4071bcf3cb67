"""Bit addresses: pinned for ever, inside the vector, in the right slice or line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.layout.contract import Geometry, LayoutCode, SchemeCode
from bloomstore.layout.layouts import BY_NAME, SCHEMES, geometry_of
from tests.support.checkout import ROOT

PINNED = json.loads((ROOT / "tests/golden/positions.json").read_text())
FINGERPRINTS = st.binary(min_size=16, max_size=16)


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    layout = draw(st.sampled_from(LayoutCode))
    spread_only = layout == LayoutCode.BLOCKED
    scheme = SchemeCode.SPREAD if spread_only else draw(st.sampled_from(SchemeCode))
    if layout == LayoutCode.BLOCKED:
        bits = 512 * draw(st.integers(1, 2**39))
    elif scheme == SchemeCode.H3:
        bits = 1 << draw(st.integers(0, 48))
    else:
        bits = draw(st.integers(1, 2**48))
    hashes = draw(st.integers(1, 64))
    return geometry_of(layout, scheme, bits, hashes)


def vectorised(geometry: Geometry, fingerprint: bytes) -> list[int]:
    prints = np.frombuffer(fingerprint, dtype="<u8").astype(np.uint64).reshape(1, 2)
    return [int(geometry.addresses(prints, j)[0]) for j in range(geometry.hashes)]


@pytest.mark.parametrize(
    "row", PINNED, ids=lambda row: "-".join(map(str, row["geometry"])) + "-" + row["fingerprint"]
)
def test_addresses_are_where_they_always_were(row: dict[str, Any]) -> None:
    layout, scheme, slice_bits, hashes = row["geometry"]
    geometry = BY_NAME[layout](scheme=SCHEMES[scheme], slice_bits=slice_bits, hashes=hashes)
    fingerprint = bytes.fromhex(row["fingerprint"])
    assert geometry.addresses_of_one(fingerprint) == row["addresses"]
    assert vectorised(geometry, fingerprint) == row["addresses"]


def test_every_layout_and_scheme_is_pinned() -> None:
    found = {tuple(row["geometry"][:2]) for row in PINNED}
    layouts = {layout for layout, _ in found}
    assert layouts == {code.name.lower() for code in LayoutCode}
    assert {scheme for _, scheme in found} == {code.name.lower() for code in SchemeCode}


@given(geometry=geometries(), fingerprint=FINGERPRINTS)
def test_one_key_and_many_keys_have_the_same_addresses(
    geometry: Geometry, fingerprint: bytes
) -> None:
    assert vectorised(geometry, fingerprint) == geometry.addresses_of_one(fingerprint)


@given(geometry=geometries(), fingerprint=FINGERPRINTS)
def test_addresses_lie_in_their_slice_or_line(geometry: Geometry, fingerprint: bytes) -> None:
    addresses = geometry.addresses_of_one(fingerprint)
    assert len(addresses) == geometry.hashes
    if geometry.layout == LayoutCode.SLICED:
        for j, address in enumerate(addresses):
            assert 0 <= address - j * geometry.stride_bits < geometry.slice_bits
    else:
        assert all(0 <= address < geometry.slice_bits for address in addresses)
    if geometry.layout == LayoutCode.BLOCKED:
        assert len({address // 512 for address in addresses}) == 1
