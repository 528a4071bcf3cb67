"""The Alembic environment of bloomstore, in a wheel and in an installed checkout alike."""
