"""Fixtures of the power-loss tests: processes that judge images, shared by all of them."""

from __future__ import annotations

import collections.abc as abc

import pytest

from tests.powerloss.campaign import Judges


@pytest.fixture(scope="session")
def judges(tmp_path_factory: pytest.TempPathFactory) -> abc.Iterator[Judges]:
    """Processes that build and judge images."""
    with Judges(tmp_path_factory.mktemp("images")) as opened:
        yield opened
