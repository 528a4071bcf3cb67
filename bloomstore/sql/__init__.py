"""Guards for SQLAlchemy: a key that is certainly absent never costs a query.

class User(Base):
id: Mapped[int] = mapped_column(primary_key=True, info={"bloomstore": Guard()})

plugin = BloomPlugin(store, Base.metadata)
plugin.listen(engine, Session)
plugin.build(engine)
plugin.probe(User.id, 42)
"""

from bloomstore.sql.answer import Answer
from bloomstore.sql.build import BuildError, Built
from bloomstore.sql.guard import Guard
from bloomstore.sql.option import Guarded
from bloomstore.sql.plugin import BloomPlugin
from bloomstore.sql.session import GuardedSession
from bloomstore.sql.url import plugin_of

__all__ = [
    "Answer",
    "BloomPlugin",
    "BuildError",
    "Built",
    "Guard",
    "Guarded",
    "GuardedSession",
    "plugin_of",
]
