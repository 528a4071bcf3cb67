"""Text is harmless only if it surely is one statement of a kind that is known to be."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomstore.sql.databases.sql_text import Effect, Text
from bloomstore.sql.databases.tokens import statements_of

PG, MY, LITE = "postgresql", "mysql", "sqlite"
EVERY = (PG, MY, LITE)


@pytest.mark.parametrize(
    ("sql", "dialects"),
    [
        ("SELECT * FROM users", EVERY),
        ("  -- note\n /* x */ (SELECT 1)", EVERY),
        ("SELECT * FROM users;", EVERY),
        ("SELECT ';', 'it''s' FROM users -- ; INSERT", EVERY),
        ("SELECT * FROM users FOR UPDATE", (PG, MY)),
        ("SELECT * FROM users FOR NO KEY UPDATE OF users SKIP LOCKED", (PG,)),
        ("SELECT replace(email, 'update', 'x'), count(*) FROM users", EVERY),
        ("SELECT users.id FROM users WHERE users.id = %(id_1)s::INTEGER", (PG,)),
        ("SELECT users.id FROM users WHERE users.id IN (__[POSTCOMPILE_id_1])", EVERY),
        ("SELECT CAST(id AS VARCHAR(20)) FROM users WHERE a = $1::VARCHAR", (PG,)),
        ("SELECT a$b$, c$ FROM users WHERE a=$1 AND b IN ($2,$3)", (PG,)),
        ("SELECT $$ ; INSERT INTO users $$, $x$ $$ ; $x$", (PG,)),
        ("SELECT data #>> '{a}' FROM users", (PG,)),
        ("SELECT 1 # ; INSERT INTO users\n", (MY,)),
        ("SELECT 1--1", (MY,)),
        ("SELECT [a;b], `c;d` FROM users", (LITE,)),
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t) SELECT * FROM t", EVERY),
        ("DELETE FROM users WHERE id = 1", EVERY),
        ("SELECT id FROM __[SCHEMA__none].users", EVERY),
        ("SHOW TABLES", (MY,)),
        ("EXPLAIN SELECT * FROM users", EVERY),
        ("EXPLAIN ANALYZE DELETE FROM users", (PG,)),
        ("SHOW CREATE TABLE users", (MY,)),
        ("SAVEPOINT a", EVERY),
        ("RELEASE SAVEPOINT a", (PG, MY)),
        ("SET LOCAL statement_timeout = '5s'", (PG,)),
        ("SET LOCAL app.tenant = '5'", (PG,)),
        ("SET foreign_key_checks = 0", (MY,)),
        ("SET @a = 5", (MY,)),
        ("SET TRANSACTION READ ONLY", (PG,)),
        ('PRAGMA main.table_info("users")', (LITE,)),
        ("SELECT my_function(1)", (LITE,)),
    ],
)
def test_what_is_harmless(sql: str, dialects: tuple[str, ...]) -> None:
    for dialect in dialects:
        assert Text(sql, dialect).is_harmless, dialect


@pytest.mark.parametrize(
    ("sql", "dialects"),
    [
        ("INSERT INTO users VALUES (1)", EVERY),
        ("WITH x AS (INSERT INTO users VALUES (1) RETURNING 1) SELECT 1", (PG,)),
        ("WITH x AS (SELECT 1) INSERT INTO users SELECT * FROM x", EVERY),
        ("SELECT 1; UPDATE users SET a = 1", EVERY),
        ("INSERT INTO log VALUES ('--'); INSERT INTO users VALUES (1)", EVERY),
        ("/*! INSERT INTO users VALUES (1) */", (MY,)),
        ("/*M!100100 INSERT INTO users VALUES (1) */", (MY,)),
        ("SELECT 1 /* /* */ ; INSERT INTO users VALUES (1) -- */", EVERY),
        ("SELECT 'a\\'; INSERT INTO users VALUES (1) -- '", (PG, MY)),
        ("SELECT E'a\\'; INSERT INTO users VALUES (1) -- '", (PG,)),
        ("SELECT $a$ $b$; INSERT INTO users VALUES (1)", (PG,)),
        ("SELECT $\u20ac$ ' $\u20ac$; INSERT INTO users VALUES (1) --'", (PG,)),
        ("SELECT $a\U0001f600$ ' $a\U0001f600$; INSERT INTO users VALUES (1) --'", (PG,)),
        ("SELECT $1$a$ ' $a$; INSERT INTO users VALUES (1) --'", EVERY),
        ("SELECT 1\u20ac$a$ ' $a$; INSERT INTO users VALUES (1) --'", EVERY),
        ("SELECT $a$ ' $a$; INSERT INTO users VALUES (1) --'", EVERY),
        ("WITH x AS (SELECT $a(')) INSERT INTO users SELECT 1 --')", (LITE,)),
        ("WITH x AS (SELECT :a(')) INSERT INTO users SELECT 1 --')", (LITE,)),
        ("WITH x AS (SELECT @a::b(')) INSERT INTO users SELECT 1 --')", (LITE,)),
        ("WITH x AS (SELECT 1)\ufeffUPDATE users SET id = 1", (LITE,)),
        ("SELECT 1 -- x\r; INSERT INTO users VALUES (1)", (PG,)),
        ("SELECT 1 #> x; INSERT INTO users VALUES (1)", (PG,)),
        ('INSERT INTO U&"\\0075sers" VALUES (1)', (PG,)),
        ("DROP TABLE users; ALTER TABLE users_new RENAME TO users", EVERY),
        ("BEGIN; ALTER TABLE users RENAME TO users_old", EVERY),
        ("SET lock_timeout = '5s'; ALTER TABLE users RENAME TO users_old", (PG,)),
        ("LOCK TABLE users; ALTER TABLE users_new RENAME TO users", (PG,)),
        ("BEGIN NOT ATOMIC INSERT INTO x VALUES (1); END", (MY,)),
        ("SET STATEMENT sql_mode = '' FOR INSERT INTO users VALUES (1)", (MY,)),
        ("CALL anything()", EVERY),
        ("DO $$ BEGIN END $$", (PG,)),
        ("EXECUTE prepared", EVERY),
        ("COPY other FROM stdin", (PG,)),
        ("EXPLAIN ANALYZE INSERT INTO users VALUES (1)", (PG,)),
        ("EXPLAIN ANALYZE CREATE TABLE a.users AS SELECT 1 AS id", (PG,)),
        ("EXPLAIN ANALYZE VERBOSE CREATE MATERIALIZED VIEW users AS SELECT 1 AS id", (PG,)),
        ("EXPLAIN ANALYZE REFRESH MATERIALIZED VIEW a", (PG,)),
        ("ANALYZE UPDATE users SET id = 1", (MY,)),
        ("SELECT * INTO users FROM other", (PG,)),
        ("REPLACE INTO `users` VALUES (1)", (MY, LITE)),
        ("MERGE INTO users USING x ON true", (PG,)),
        ("ALTER TABLE users ADD x int", EVERY),
        ("CREATE TABLE users (id int)", EVERY),
        ("DROP TABLE a.users", EVERY),
        ("DROP SCHEMA a CASCADE", (PG,)),
        ("ALTER TYPE mood RENAME VALUE 'a' TO 'b'", (PG,)),
        ("REVOKE USAGE ON SCHEMA a FROM b", (PG,)),
        ("CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same)", (PG,)),
        ("CREATE OPERATOR CLASS a DEFAULT FOR TYPE text USING btree AS STORAGE text", (PG,)),
        ("CREATE CAST (text AS a) WITH FUNCTION f(text) AS IMPLICIT", (PG,)),
        ("CREATE EXTENSION citext", (PG,)),
        ("CREATE EXTENSION IF NOT EXISTS hstore WITH SCHEMA pgcrypto CASCADE", (PG,)),
        ("CREATE COLLATION a (provider = icu, locale = 'und', deterministic = false)", (PG,)),
        ("CREATE TYPE a (INPUT = f, OUTPUT = g)", (PG,)),
        ("CREATE DOMAIN a AS text", (PG,)),
        ("CREATE AGGREGATE a (int) (SFUNC = f, STYPE = int)", (PG,)),
        ("CREATE TRANSFORM FOR int LANGUAGE a (FROM SQL WITH FUNCTION f(internal))", (PG,)),
        ("CREATE DEFAULT CONVERSION a FOR 'UTF8' TO 'LATIN1' FROM f", (PG,)),
        ("CREATE OR REPLACE TRUSTED LANGUAGE a", (PG,)),
        ("CREATE SUBSCRIPTION a CONNECTION 'host=b' PUBLICATION c", (PG,)),
        ("CREATE SCHEMA a CREATE OPERATOR = (FUNCTION = same)", (PG,)),
        ("CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'x'", (PG,)),
        ("CREATE FOREIGN DATA WRAPPER a", (PG,)),
        ("ALTER FUNCTION f() SET search_path = a", (PG,)),
        ("ALTER SYSTEM SET search_path = a", (PG,)),
        ("ALTER SCHEMA a RENAME TO b", (PG,)),
        ("DROP FUNCTION a.f()", (PG,)),
        ("DROP OPERATOR = (varchar, varchar)", (PG,)),
        ("CREATE DEFINER = a@b PROCEDURE p() SELECT 1", (MY,)),
        ("UPDATE sqlite_master SET sql = 'x'", (LITE,)),
        ("UPDATE pg_class SET relname = 'x'", (PG,)),
        ("ATTACH 'x' AS y", (LITE,)),
        ("SELECT query_to_xml('insert into users values (1)', true, true, '')", (PG,)),
        ("whatever this is", EVERY),
        ("SELECT 'not closed", EVERY),
        ("SELECT 1 \\ 2", EVERY),
    ],
)
def test_what_may_write_to_a_table(sql: str, dialects: tuple[str, ...]) -> None:
    for dialect in dialects:
        assert Text(sql, dialect).writes_to("users"), dialect


@pytest.mark.parametrize(
    ("sql", "dialects"),
    [
        ("SET ROLE x", (PG,)),
        ("SET SESSION AUTHORIZATION x", (PG,)),
        ("SET search_path TO x", (PG,)),
        ("RESET search_path", (PG,)),
        ("RESET ALL", (PG,)),
        ("DISCARD ALL", (PG,)),
        ("UPDATE pg_settings SET setting = 'x' WHERE name = 'search_path'", (PG,)),
        ("SELECT set_config('search_path', 'x', false)", (PG,)),
        ("SELECT of_the_application()", (PG, MY)),
        ("SELECT x.lower('A')", (PG, MY)),
        ("CREATE TABLE other AS SELECT of_the_application()", (PG, MY)),
        ("CREATE INDEX i ON other (of_the_application(a))", (PG, MY)),
        ("ALTER TABLE other ADD a text DEFAULT of_the_application()", (PG, MY)),
        ("SELECT year(a), if(b) FROM users", (PG,)),  # PostgreSQL itself has none of this name
        ("SELECT array_agg(a) FROM users", (MY,)),
        ("SELECT \u017fum(1)", (PG, MY)),  # in upper case it would be SUM
        ("INSERT INTO other SELECT of_the_application()", (PG, MY)),
        ("SELECT DISTINCT ON (a) of_the_application() FROM users", (PG,)),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", (PG,)),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", (PG,)),
        ("SET statement_timeout = 5, search_path = x", (PG,)),
        ("USE x", (MY,)),
        ("SET NAMES latin1", (MY,)),
        ("SET @@sql_mode = ''", (MY,)),
        ("SET foreign_key_checks = 0, sql_mode = ''", (MY,)),
        ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", (MY,)),
        ("PRAGMA read_uncommitted = 1", (LITE,)),
        ("CREATE TEMPORARY TABLE x (id int)", EVERY),
        ("CREATE TABLE pg_temp.x (id int)", (PG,)),
        ("SELECT 1; SET ROLE x", (PG,)),
        ("/*! USE x */", (MY,)),
    ],
)
def test_what_may_change_the_connection(sql: str, dialects: tuple[str, ...]) -> None:
    for dialect in dialects:
        assert Text(sql, dialect).effects & Effect.SETS, dialect


def test_a_name_that_is_filled_in_later_is_no_function() -> None:
    sql = "INSERT INTO __[SCHEMA__none].users (id) VALUES (%s)"
    assert [Text(sql, dialect).effects for dialect in EVERY] == [Effect.WRITES] * 3


def test_what_lasts_as_long_as_the_transaction() -> None:
    for sql in ("SET LOCAL ROLE x", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"):
        assert Text(sql, PG).effects == Effect.SETS_LOCALLY


@pytest.mark.parametrize(
    ("sql", "commits"),
    [
        ("SELECT 1", False),
        ("INSERT INTO users VALUES (1)", False),
        ("SELECT 1; COMMIT", True),
        ("ROLLBACK TO SAVEPOINT a", False),
        ("TRUNCATE users", True),
        ("CREATE UNIQUE INDEX i ON users (a)", True),
        ("PREPARE TRANSACTION 'x'", True),
        ("COMMIT PREPARED 'x'", True),
        ("SELECT 'not closed", True),
        ("", True),
    ],
)
def test_what_may_commit(sql: str, commits: bool) -> None:
    assert Text(sql, PG).may_commit is commits


@pytest.mark.parametrize(
    ("sql", "dialects"),
    [
        ("CREATE TABLE other (id int)", EVERY),
        ("CREATE UNLOGGED TABLE IF NOT EXISTS other (id int)", (PG,)),
        ("CREATE OR REPLACE TABLE other (id int)", (MY,)),
        ("CREATE OR REPLACE VIEW other AS SELECT 1", (PG, MY)),
        ("CREATE MATERIALIZED VIEW other AS SELECT 1", (PG,)),
        ("CREATE VIRTUAL TABLE other USING fts5(a)", (LITE,)),
        ("CREATE UNIQUE INDEX i ON other (a)", EVERY),
        ("CREATE SEQUENCE other", (PG, MY)),
        ("CREATE ROLE other", (PG,)),
        ("CREATE SCHEMA IF NOT EXISTS other", (PG, MY)),
        ("CREATE SCHEMA IF NOT EXISTS other AUTHORIZATION someone", (PG,)),
        ("CREATE TYPE mood AS ENUM ('a', 'b')", (PG,)),
        ('CREATE EXTENSION IF NOT EXISTS "uuid-ossp"', (PG,)),
        ("CREATE EXTENSION pgcrypto WITH SCHEMA other", (PG,)),
        ("ALTER TABLE other ADD x int", EVERY),
        ("ALTER DEFAULT PRIVILEGES IN SCHEMA a GRANT SELECT ON TABLES TO b", (PG,)),
        ("DROP TABLE IF EXISTS other", EVERY),
        ("RENAME TABLE other TO others", (MY,)),
    ],
)
def test_what_concerns_only_what_it_names(sql: str, dialects: tuple[str, ...]) -> None:
    for dialect in dialects:
        assert not Text(sql, dialect).writes_to("users"), dialect


def test_an_unknown_kind_of_database_has_no_harmless_text() -> None:
    assert Text("SELECT 1", "oracle").effects == Effect.ANYTHING


CLOSED = {
    PG: [
        "'a;''b'",
        '"a;""b"',
        "$$ ' ; $$",
        "$t$ $$ ; $t$",
        "$\u20ac$ ' ; $\u20ac$",
        "/* ; ' */",
        "-- ; '\n",
        "E'\\n'",
    ],
    MY: ["'a;''b'", '"a;""b"', "`a;``b`", "/* ; ' */", "-- ; '\n", "# ; '\n", "'\\n'", "--1"],
    LITE: ["'a;''b'", '"a;""b"', "`a;``b`", "[a;'b]", "/* ; ' */", "-- ; '\n", "'\\'"],
}
PLAIN = ["SELECT", "1", "(", ")", ",", ";", "users", "%(a)s", ":b", "?", "FROM", "a.b", "\n"]


@given(st.data(), st.sampled_from(EVERY))
def test_whatever_stands_around_it_a_second_statement_is_seen(data: st.DataObject, dialect) -> None:
    parts = st.lists(st.sampled_from(CLOSED[dialect] + PLAIN), max_size=8).map(" ".join)
    sql = f"{data.draw(parts)} ; INSERT INTO users VALUES (1) ; {data.draw(parts)}"
    text = Text(sql, dialect)
    assert text.writes_to("users")
    assert not text.is_harmless


@given(st.text(max_size=30), st.sampled_from(EVERY))
def test_any_text_is_cut_without_an_error(sql: str, dialect: str) -> None:
    for statement in statements_of(sql, dialect) or []:
        assert len(statement) > 0
    Text(sql, dialect)


ALPHABET = [
    "INSERT INTO users VALUES (1)", "SELECT 1", "SELECT", "1", ";", "'", "''", '"', "`", "[", "]",
    "--", "\n", "\r", "/*", "*/", " ", "\\", "#", "$$", "WITH x AS (SELECT 1)", "(", ")", "\v",
    "$a", ":a", "@", "\ufeff",
]  # fmt: skip


@settings(max_examples=400)
@given(st.lists(st.sampled_from(ALPHABET), max_size=10).map("".join))
def test_text_that_writes_in_sqlite_is_seen(sql: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE users (id INTEGER)")
    with contextlib.suppress(sqlite3.Error):
        connection.executescript(sql)
    (count,) = connection.execute("SELECT count(*) FROM users").fetchone()
    connection.close()
    assert not count or Text(sql, "sqlite").writes_to("users")
