"""The registry of guards: what a migration or an outbox has to tell of each.

Revision: bloomstore_0002, after bloomstore_0001.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError

revision = "bloomstore_0002"
down_revision = "bloomstore_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table."""
    exact = sa.String(255).with_variant(sa.String(255, collation="utf8mb4_bin"), "mysql", "mariadb")
    op.create_table(
        "bloomstore_guards",
        sa.Column("name", exact, primary_key=True),
        sa.Column("schema_name", sa.String(64)),
        sa.Column("table_name", sa.String(64), nullable=False),
        sa.Column("column_names", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("outbox", sa.String(64)),
        sa.Column("floor", sa.BigInteger),
        sa.Column("follower", sa.String(64)),
        if_not_exists=True,
    )


def downgrade() -> None:
    """Drops it, and the incarnation's row with it; refuses while an outbox is in use.

    Epochs count from the start again in the next table, so what was built with the old ones must
    not be believed.
    """
    if not op.get_context().as_sql:
        used = sa.text("SELECT name FROM bloomstore_guards WHERE outbox IS NOT NULL ORDER BY name")
        if names := op.get_bind().execute(used).scalars().all():
            raise CommandError(f"outboxes are in use, drop them first: {', '.join(names)}")
    op.execute("DELETE FROM bloomstore_incarnation")
    op.drop_table("bloomstore_guards", if_exists=True)
