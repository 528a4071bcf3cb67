"""Runs the revisions of this folder, on a connection that was handed over or as SQL text.

The version table is our own, so that this environment and the application's never meet.
"""

from __future__ import annotations

from alembic import context

VERSION_TABLE = "bloomstore_alembic_version"

if context.is_offline_mode():
    context.configure(
        dialect_name=context.config.attributes["dialect"],
        version_table=VERSION_TABLE,
        literal_binds=True,
    )
else:
    context.configure(
        connection=context.config.attributes["connection"], version_table=VERSION_TABLE
    )
with context.begin_transaction():
    context.run_migrations()
