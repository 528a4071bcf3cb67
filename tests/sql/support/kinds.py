"""Marks for tests that concern some of the databases only."""

from __future__ import annotations

import pytest

only_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
only_postgresql = pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
only_mariadb = pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
only_servers = pytest.mark.parametrize("kind", ["postgresql", "mariadb"], indirect=True)
not_postgresql = pytest.mark.parametrize("kind", ["sqlite", "mariadb"], indirect=True)
