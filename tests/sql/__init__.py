"""Guards on real databases: SQLite, PostgreSQL and MariaDB run the same tests."""
