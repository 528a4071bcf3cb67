"""The identity of a database: one row with a random UUID, made by the first build.

Revision: bloomstore_0001, the first. A table that a build has made before is accepted as it is.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "bloomstore_0001"
down_revision = None
branch_labels = ("bloomstore",)
depends_on = None


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "bloomstore_incarnation",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("value", sa.String(36), nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """Drops it: every guard answers UNKNOWN until it is built again."""
    op.drop_table("bloomstore_incarnation", if_exists=True)
