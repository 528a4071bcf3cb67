"""Both kernels for the tests; a missing compiled one is a failure where it was required."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest

from bloomstore.kernels import numpy_twin


def compiled_kernels() -> ModuleType:
    """The compiled twin, or a skip with its reason, or a failure when it had to be built."""
    try:
        return importlib.import_module("bloomstore.kernels.compiled")
    except ImportError as error:
        if os.environ.get("BLOOMSTORE_REQUIRE_COMPILED") == "1":
            pytest.fail(f"BLOOMSTORE_REQUIRE_COMPILED=1, but the kernels are not built: {error}")
        pytest.skip(f"nothing to compare with, the compiled kernels are not built: {error}")


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    return compiled_kernels()


@pytest.fixture(scope="session", params=["numpy", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    """Each twin in turn."""
    return numpy_twin if request.param == "numpy" else compiled_kernels()
