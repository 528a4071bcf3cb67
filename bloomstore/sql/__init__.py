"""Guards for SQLAlchemy: a key that is certainly absent never costs a query.

    class User(Base):
        id: Mapped[int] = mapped_column(primary_key=True, info={"bloomstore": Guard()})

    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, Session)
    plugin.build(engine)
    plugin.probe(User.id, 42)

Its rooms, lowest first; a room imports only rooms above its own line:

    sqlalchemy_private.py  the only file that touches SQLAlchemy's private names
    answer.py              ABSENT, MAYBE, or UNKNOWN with a reason
    attached.py            all state attached to sessions, connections and transactions
    listeners.py           event listeners that are added once each and removed again
    databases/             how a kind of database compares, isolates, waits, identifies itself
    schema/                bloomstore's tables in the user's database
    guards/                guards, their keys, and whether their filters may be believed
    capture/               writes become keys before their rows become visible
    outbox/                keys of writers that no plugin sees
    ask/                   lookups that need not be sent
    build/                 makes guards valid by reading their tables
    plugin.py              BloomPlugin: wires the rooms
    engine_url.py          plugin=bloomstore in a URL
    alembic.py             operations and autogenerate hooks for migrations
"""

from bloomstore.errors import BuildError
from bloomstore.sql.answer import Answer
from bloomstore.sql.ask.option import Guarded
from bloomstore.sql.ask.session import GuardedSession
from bloomstore.sql.build.build import Built
from bloomstore.sql.build.table_source import SelectSource, TableSource
from bloomstore.sql.engine_url import plugin_of
from bloomstore.sql.guards.declaration import Guard
from bloomstore.sql.plugin import BloomPlugin

__all__ = [
    "Answer",
    "BloomPlugin",
    "BuildError",
    "Built",
    "Guard",
    "Guarded",
    "GuardedSession",
    "SelectSource",
    "TableSource",
    "plugin_of",
]
