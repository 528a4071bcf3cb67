"""A table whose guards are fed by outboxes, an engine that writes to it, another one that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.sql import BloomPlugin
from tests.sql.support import outbox_models as fed
from tests.sql.support.outbox_models import listening


@pytest.fixture
def world(engine: sa.Engine) -> Iterator[sa.Engine]:
    """The fed table; its engine is listened to by nobody: it is the writer elsewhere."""
    fed.make(engine)
    yield engine
    fed.unmake(engine)


@pytest.fixture
def asking(world: sa.Engine) -> Iterator[sa.Engine]:
    """The engine of those who ask."""
    engine = sa.create_engine(world.url)
    yield engine
    engine.dispose()


@pytest.fixture
def plugin(store: bloomstore.Store, asking: sa.Engine) -> Iterator[BloomPlugin]:
    """It listens to the engine of those who ask; its guards are valid."""
    plugin = listening(store, asking)
    plugin.build(asking)
    yield plugin
    plugin.unlisten()
