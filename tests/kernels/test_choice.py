"""Which twin runs is decided at import, by what was built or by BLOOMSTORE_KERNELS."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from types import ModuleType

import pytest

from bloomstore import kernels
from bloomstore.kernels import numpy_twin, single_key

SHOW = "from bloomstore import kernels; print(kernels.BACKEND, kernels.find.__module__)"
HIDE = "import sys; sys.modules['bloomstore.kernels.compiled'] = None; "


def run(code: str, forced: str | None) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name != "BLOOMSTORE_KERNELS"
    }
    if forced is not None:
        environment["BLOOMSTORE_KERNELS"] = forced
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_numpy_can_be_forced() -> None:
    assert run(SHOW, "numpy").stdout.split() == ["numpy", "bloomstore.kernels.numpy_twin"]


@pytest.mark.parametrize("forced", [None, "", "compiled"])
def test_compiled_is_taken_where_it_was_built(compiled: ModuleType, forced: str | None) -> None:
    assert run(SHOW, forced).stdout.split() == ["compiled", "bloomstore.kernels.compiled"]


@pytest.mark.parametrize("forced", [None, "", "numpy"])
def test_numpy_is_taken_where_nothing_was_built(forced: str | None) -> None:
    assert run(HIDE + SHOW, forced).stdout.split()[0] == "numpy"


def test_forcing_what_was_not_built_names_the_build_flag() -> None:
    done = run(HIDE + SHOW, "compiled")
    assert done.returncode != 0
    assert "ImportError" in done.stderr
    assert "BLOOMSTORE_REQUIRE_COMPILED=1" in done.stderr


def test_an_unknown_twin_is_an_error() -> None:
    done = run(SHOW, "cuda")
    assert done.returncode != 0
    assert "BLOOMSTORE_KERNELS must be 'numpy' or 'compiled', got 'cuda'" in done.stderr


def test_both_twins_have_every_function_with_the_same_parameters(compiled: ModuleType) -> None:
    public = {name: getattr(kernels, name) for name in kernels.__all__}
    functions = [name for name, thing in public.items() if callable(thing)]
    for name in functions:
        if inspect.isclass(public[name]):
            continue
        left = inspect.signature(getattr(numpy_twin, name)).parameters
        right = inspect.signature(getattr(compiled, name)).parameters
        assert list(left) == list(right), name


def test_both_twins_of_single_keys_have_the_same_methods(compiled: ModuleType) -> None:
    for name in ("OneKey", "Keeper"):
        twin, fast = getattr(single_key, name)(*[7][: name == "OneKey"]), getattr(compiled, name)
        for attribute in [found for found in dir(twin) if not found.startswith("__")]:
            assert hasattr(fast, attribute) or attribute.endswith("_slowly"), attribute
