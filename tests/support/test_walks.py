"""A walk that leads nowhere is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.walks import Step, defines, steps_of


def test_steps_are_read_and_a_line_that_is_none_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "walk.md"
    document.write_text("# Walk\n\n- `a/b.py`: `C.d` does it\n- something else\n- `a/b.c`: `e`\n")
    assert steps_of(document) == [Step("a/b.py", "C.d"), Step("a/b.c", "e")]
    document.write_text("1. `a/b.py`: C.d does it\n")
    with pytest.raises(ValueError, match=r"walk.md:1: expected"):
        steps_of(document)
    assert steps_of(tmp_path / "missing.md") == []


@pytest.mark.parametrize(
    ("file", "name", "is_there"),
    [
        ("bloomstore/store/filter.py", "Filter.add_many", True),
        ("bloomstore/store/filter.py", "Filter", True),
        ("bloomstore/store/filter.py", "add_many", False),
        ("bloomstore/store/filter.py", "Filter.add_none", False),
        ("bloomstore/kernels/single_key.pxi", "OneKey.__contains__", True),
        ("bloomstore/kernels/single_key.pxi", "OneKey.__absent__", False),
    ],
)
def test_names_are_looked_up_in_the_source(file: str, name: str, is_there: bool) -> None:
    assert defines(ROOT / file, name) is is_there
