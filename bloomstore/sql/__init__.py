"""Guards for SQLAlchemy: a key that is certainly absent never costs a query.

class User(Base):
id: Mapped[int] = mapped_column(primary_key=True, info={"bloomstore": Guard()})

plugin = BloomPlugin(store, Base.metadata)
plugin.listen(engine, Session)
plugin.build(engine)
plugin.probe(User.id, 42)
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
