"""Every layout fulfils the contract: nothing outside the room needs to know which one it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bloomstore
from bloomstore.errors import SpecError
from bloomstore.layout.contract import Geometry, LayoutCode, SchemeCode
from bloomstore.layout.layouts import BY_NAME, LAYOUTS, geometry_of

ALL = [
    geometry_of(code, scheme, 1 << 15, 6)
    for code, kind in LAYOUTS.items()
    for scheme in kind.schemes
]


def test_every_code_has_a_layout_and_every_layout_a_name_of_its_own() -> None:
    assert set(LAYOUTS) == set(LayoutCode)
    assert list(BY_NAME) == [code.name.lower() for code in LAYOUTS]


@pytest.mark.parametrize("geometry", ALL, ids=str)
def test_a_scheme_that_a_layout_does_not_take_is_refused_by_name(geometry: Geometry) -> None:
    for scheme in set(SchemeCode) - set(geometry.schemes):
        with pytest.raises(SpecError, match=f"{geometry.name()!r} takes hash scheme"):
            geometry_of(geometry.layout, scheme, geometry.slice_bits, geometry.hashes)


@pytest.mark.parametrize("geometry", ALL, ids=str)
def test_errors_fills_and_keys_of_a_vector_agree(geometry: Geometry) -> None:
    keys = 0.5 * geometry.keys_at_fill(0.5)
    half = geometry.vector_bits // 2
    assert geometry.keys_and_sigma(half)[0] == pytest.approx(geometry.keys_at_fill(0.5), rel=0.01)
    assert 0.0 == geometry.error_with(0) < geometry.error_with(keys) < geometry.error_at(half)
    assert geometry.error_with(2 * keys) == pytest.approx(geometry.error_at(half), rel=0.02)
    assert geometry.keys_and_sigma(0) == (0.0, 0.0)
    assert geometry.keys_and_sigma(geometry.vector_bits)[0] == float("inf")


@pytest.mark.parametrize("geometry", ALL, ids=str)
def test_damage_raises_the_error_from_what_it_is_to_one(geometry: Geometry) -> None:
    half = geometry.vector_bits // 2
    sound, some, all_of_it = (
        geometry.error_when_damaged(half, [share] * geometry.slices) for share in (0.0, 0.1, 1.0)
    )
    assert sound == pytest.approx(geometry.error_at(half), rel=1e-9)
    assert sound < some < all_of_it == 1.0


@pytest.mark.parametrize("geometry", ALL, ids=str)
def test_more_keys_are_offered_than_are_new_the_higher_the_error(geometry: Geometry) -> None:
    few, many = geometry.offered_per_new(0.01), geometry.offered_per_new(0.3)
    assert 1.0 < few < many
    error, moment = geometry.error_when_counted_full(2000, 0.0)
    unlucky, _ = geometry.error_when_counted_full(2000, 3.1)
    assert 0.0 < moment <= error < unlucky <= 1.0


def test_a_code_that_no_layout_has_is_refused() -> None:
    with pytest.raises(ValueError, match="99"):
        geometry_of(99, SchemeCode.SPREAD, 512, 3)


def test_no_other_room_asks_which_layout_it_has() -> None:
    root = Path(bloomstore.__file__).parent
    names = "|".join(kind.__name__ for kind in LAYOUTS.values())
    asks = re.compile(rf"LayoutCode\.|\b({names})\b|\blayout(_name)? (==|!=|in) [\"'(]")
    elsewhere = [path for path in root.rglob("*.py") if path.parent.name != "layout"]
    assert len(elsewhere) > 100
    assert [path for path in elsewhere if asks.search(path.read_text())] == []
