"""Every family fulfils the contract: nothing outside the room asks which one it has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Dynamic, Fixed, Flexible, Scalable, Sequence
from bloomstore.errors import SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.families.expansion import ByRate, LastValue, LinearTrend, MovingAverage
from bloomstore.families.plain_form import FAMILIES, spec_from_dict

SPECS: list[FilterSpec] = [
    Fixed(capacity=1000, target_error=0.01),
    Fixed(capacity=1000, target_error=0.01, layout="plain", scheme="h3", seed=7),
    Scalable(target_error=1e-3, growth=4, tightening=0.5),
    Dynamic(capacity=500, target_error=0.02),
    Flexible(baseline_bits=4096, hashes=4, capacity=300, expansion=Sequence([1, 3])),
    *(
        Flexible(baseline_bits=4096, hashes=4, error=0.01, expansion=ByRate(predictor))
        for predictor in (LastValue(), MovingAverage(5), LinearTrend())
    ),
]


def test_every_family_is_among_these() -> None:
    assert {type(spec) for spec in SPECS} == set(FAMILIES.values())


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_spec_comes_back_from_its_plain_form(spec: FilterSpec) -> None:
    plain = json.loads(json.dumps(spec.to_dict()))
    assert plain["family"] == spec.family
    assert spec_from_dict(plain) == spec


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_spec_is_met_by_itself_with_its_layout_named_and_by_no_other(spec: FilterSpec) -> None:
    assert spec.is_met_by(spec.resolved())
    assert spec.resolved().resolved() == spec.resolved()
    assert [other for other in SPECS if spec.is_met_by(other.resolved())] == [spec]
    assert spec.layouts()[spec.layout_name] == spec.resolved()


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_rebuilt_filter_may_have_another_capacity_and_nothing_else(spec: FilterSpec) -> None:
    larger = spec.resolved().for_keys(12_345)
    assert spec.is_met_by(larger, is_rebuilt=True)
    assert spec.is_met_by(larger) == (not spec.can_be_sized)
    assert larger.first_capacity == (12_345 if spec.can_be_sized else spec.first_capacity)
    assert spec.promised_keys in (0, spec.first_capacity)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_only_a_family_that_grows_has_a_second_stage(spec: FilterSpec) -> None:
    first, second = spec.stage(0, ()), spec.stage(1, [1.0])
    assert first is not None
    assert first.capacity == spec.first_capacity
    assert (second is not None) == spec.grows
    assert spec.keys_when_full(first) >= first.capacity
    assert spec.promised_error([first]) >= spec.target_error


def test_a_flexible_filter_takes_no_error_of_a_rebuild() -> None:
    with pytest.raises(SpecError, match="no target error of its own"):
        SPECS[-1].for_keys(100, 0.1)


@pytest.mark.parametrize("plain", [{}, {"family": "oval"}, {"family": "fixed", "sides": 4}])
def test_what_is_no_plain_form_is_refused(plain: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        spec_from_dict(plain)


def test_no_other_room_asks_which_family_it_has() -> None:
    root = Path(bloomstore.__file__).parent
    names = "|".join(kind.__name__ for kind in FAMILIES.values())
    asks = re.compile(rf"isinstance\([^)]*\b({names})\b|type\([^)]*\) is ({names})\b")
    elsewhere = [path for path in root.rglob("*.py") if path.parent.name != "families"]
    assert len(elsewhere) > 100
    assert [path for path in elsewhere if asks.search(path.read_text())] == []
