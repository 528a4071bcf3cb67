"""Triggers fill an outbox: where one is missing or does not fire, the guard is in doubt."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard
from bloomstore.sql.outbox import catch_up as feed_module
from bloomstore.sql.outbox.follower import Follower
from bloomstore.sql.schema import migrate
from bloomstore.sql.schema.outbox_tables import Outbox, outbox_name
from tests.sql.support import outbox_models as fed
from tests.sql.support.kinds import only_mariadb, only_postgresql
from tests.sql.support.outbox_models import Parcel, asked, listening, write


@only_postgresql
def test_foreign_keys_that_cascade_are_no_hazard(world, asking, store) -> None:
    metadata = sa.MetaData()
    parent = sa.Table("boxes", metadata, sa.Column("id", sa.Integer, primary_key=True))
    key = sa.ForeignKey("boxes.id", onupdate="CASCADE")
    guard = Guard(feed="outbox")
    child = sa.Table(
        "labels", metadata, sa.Column("box", sa.Integer, key, info={"bloomstore": guard})
    )
    metadata.create_all(world)
    outbox = Outbox("labels.box", "labels", ["box"], None, world.dialect)
    write(world, *outbox.create())
    plugin = BloomPlugin(store, metadata)
    plugin.listen(asking)
    plugin.build(asking)
    write(world, "INSERT INTO boxes VALUES (1)", "INSERT INTO labels VALUES (1)")
    write(world, "UPDATE boxes SET id = 2")
    assert asked(asking, plugin, child.c.box, 2) is Answer.MAYBE
    assert asked(asking, plugin, child.c.box, 3) is Answer.ABSENT
    plugin.unlisten()
    write(world, *outbox.drop())
    assert parent is not None


def test_triggers_that_are_missing_put_the_guard_in_doubt(
    world, asking, plugin, store, kind
) -> None:
    name = f"{outbox_name('parcels.id')}_u"
    on = " ON parcels" if kind == "postgresql" else ""
    write(world, f"DROP TRIGGER {name}{on}")
    again = listening(store, asking)
    assert name in again.probe(Parcel.id, 1).reason
    assert "fenced" in plugin.guards["parcels.id"].why_unknown()  # in every process of the host
    again.unlisten()


@only_postgresql
def test_a_trigger_that_is_disabled_is_missing(world, asking, store, plugin) -> None:
    write(world, "ALTER TABLE parcels DISABLE TRIGGER ALL")
    again = listening(store, asking)
    assert "do not always run" in again.probe(Parcel.id, 1).reason
    again.unlisten()


def test_a_guard_without_an_outbox_says_so(store, engine) -> None:
    fed.FedBase.metadata.create_all(engine)
    plugin = listening(store, engine)
    assert "it has no outbox" in plugin.probe(Parcel.id, 1).reason
    plugin.unlisten()


@only_postgresql
@pytest.mark.parametrize(
    "how",
    [
        [
            "CREATE TABLE fresh (LIKE parcels INCLUDING ALL)",
            "INSERT INTO fresh (id) VALUES (777)",
            "ALTER TABLE parcels RENAME TO old",
            "ALTER TABLE fresh RENAME TO parcels",
        ],
        ["ALTER TABLE parcels DISABLE TRIGGER ALL", "INSERT INTO parcels (id) VALUES (777)"],
    ],
    ids=["swapped", "disabled"],
)
def test_a_table_without_its_triggers_is_unknown_on_old_connections_too(
    world, asking, plugin, how
) -> None:
    assert asked(asking, plugin, Parcel.id, 777) is Answer.ABSENT
    write(world, *how)
    assert asked(asking, plugin, Parcel.id, 777).reason == feed_module.UNFED.text
    if "fresh" in how[0]:
        write(world, "DROP TABLE parcels", "ALTER TABLE old RENAME TO parcels")


@only_mariadb
def test_partitions_of_mariadb_are_vouched_for_or_unknown(engine, store) -> None:
    """EXCHANGE PARTITION brings rows in that run no trigger."""
    url = engine.url.render_as_string(hide_password=False)
    migrate.upgrade(url)
    write(
        engine,
        "CREATE TABLE u (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200))",
        *Outbox("u.id", "u", ["id"], None, engine.dialect).create(),
    )
    for vouches in (False, True):
        guard = Guard(feed="outbox", staleness=60, ignore_triggers=vouches)
        column = sa.Column("id", sa.Integer, primary_key=True, info={"bloomstore": guard})
        metadata = sa.MetaData()
        sa.Table("u", metadata, column)
        plugin = BloomPlugin(store, metadata)
        plugin.listen(engine)
        if vouches:
            plugin.build(engine)
            Follower(engine, store).run_once()
            assert plugin.probe(column, 150) is Answer.ABSENT
        else:
            with pytest.raises(BuildError, match="EXCHANGE PARTITION"):
                plugin.build(engine)
        plugin.unlisten()
        engine.dispose()
    (problem,) = migrate.check(url)
    assert "EXCHANGE PARTITION" in problem
