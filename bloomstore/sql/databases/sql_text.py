"""The effects of SQL text: tables it may write to, and changes of the connection.

In: the text of one or several statements, and the kind of database, whose rules it is read by.
Out: a Text. Nothing is known to be harmless unless it is on a list here: the text is cut into
tokens (tokens.py), these into statements, and each statement must be of a kind whose first words
and whose whole shape say what it does. Text that cannot be cut, or is of no such kind, may do
anything.

A statement that writes may write to every table whose name occurs anywhere in the text, even in a
comment or a string.
"""

from __future__ import annotations

import re
from enum import IntFlag, auto

from bloomstore.sql.databases.harmless import CALLED, EXTENSIONS, PRAGMAS, SETTINGS
from bloomstore.sql.databases.tokens import Statement, statements_of

_WORD = re.compile(r"\w+")


class Effect(IntFlag):
    """The effects that a statement may have."""

    NOTHING = 0
    WRITES = auto()  # to the tables that it names
    WRITES_ANYTHING = auto()
    ALTERS = auto()  # tables, or where their names lead
    COMMITS = auto()
    UNDOES = auto()  # a rollback: settings may return to earlier values
    SETS = auto()  # changes settings of the connection
    SETS_LOCALLY = auto()  # the same until the transaction ends
    SETS_UNSEEN = auto()  # and no query shows it
    TOUCHES_SETTINGS = SETS | SETS_LOCALLY | SETS_UNSEEN | UNDOES | COMMITS
    ANYTHING = WRITES | WRITES_ANYTHING | ALTERS | COMMITS | SETS


_DML = frozenset("INSERT UPDATE MERGE REPLACE".split())
_RUNS = frozenset("CALL DO EXEC EXECUTE COPY LOAD IMPORT ATTACH HANDLER".split())
_QUERIES = frozenset("SELECT VALUES WITH TABLE DELETE".split())
_TRANSACTION = frozenset("BEGIN START COMMIT END ROLLBACK ABORT".split())
# Words that may follow the word of a transaction. The levels are not among them.
_OF_TRANSACTION = frozenset(
    """WORK TRANSACTION TRAN AND NO CHAIN RELEASE IMMEDIATE DEFERRED EXCLUSIVE READ WRITE ONLY NOT
    DEFERRABLE WITH CONSISTENT SNAPSHOT""".split()
)
_LEVELS = frozenset("ISOLATION LEVEL SERIALIZABLE REPEATABLE COMMITTED UNCOMMITTED".split())
# Harmless as long as no word of theirs writes or runs anything; some databases commit before them.
_UPKEEP = frozenset(
    """EXPLAIN DESCRIBE DESC SHOW ANALYZE VACUUM REINDEX CHECKPOINT COMMENT NOTIFY LISTEN UNLISTEN
    CLOSE DECLARE LOCK UNLOCK TRUNCATE DEALLOCATE XA OPTIMIZE KILL""".split()
)
_STAYS = frozenset("EXPLAIN DESCRIBE DESC SHOW".split())  # of these, without a commit
_MAKES = frozenset("CREATE REFRESH".split())  # EXPLAIN ANALYZE executes these too
# Words that may stand before the kind of a thing that is defined.
_ADJECTIVES = frozenset(
    """OR REPLACE TEMPORARY TEMP GLOBAL LOCAL UNLOGGED MATERIALIZED RECURSIVE VIRTUAL FOREIGN
    CONSTRAINT UNIQUE FULLTEXT SPATIAL ONLINE IGNORE DEFAULT""".split()
)
# The kinds whose definition concerns nothing but what the text names. No others are: an operator
# or a cast changes what is equal, triggers call functions by their names, and an extension may
# bring any of them.
_NAMED = frozenset(
    """TABLE TABLES VIEW SEQUENCE TRIGGER INDEX ROLE USER GROUP POLICY RULE EVENT DATABASE
    PRIVILEGES""".split()
)
_CATALOGS = re.compile(r"(?:PG|SQLITE|MYSQL|INFORMATION|PERFORMANCE)(?:_|$)")


class Text:
    """The effects of one text."""

    __slots__ = ("_words", "effects", "is_one", "verbs")

    def __init__(self, sql: str, dialect: str = "") -> None:
        self._words = frozenset(word.upper() for word in _WORD.findall(sql))
        found = statements_of(sql, dialect)
        self.effects = Effect.NOTHING
        self.is_one = found is not None and len(found) == 1
        self.verbs = 0  # INSERT, UPDATE, ... that begin a statement or a part of one
        if found is None:
            self.effects = Effect.ANYTHING
        else:
            for each in found:
                self.effects |= self._effects_of(each, dialect)
                self.verbs += sum(each.is_verb(place) for place in range(len(each)))
            if not found:
                self.effects = Effect.COMMITS

    @property
    def is_harmless(self) -> bool:
        """Whether it is one statement that does nothing but read or delete."""
        return self.is_one and not self.effects

    @property
    def may_write(self) -> bool:
        """Whether rows may come, or another table take the name of a guarded one."""
        return bool(self.effects & (Effect.WRITES | Effect.WRITES_ANYTHING))

    @property
    def may_alter(self) -> bool:
        """Whether a table may become another one."""
        return bool(self.effects & Effect.ALTERS)

    @property
    def may_commit(self) -> bool:
        """Whether the transaction may end, and its rows be seen."""
        return bool(self.effects & Effect.COMMITS)

    def writes_to(self, table: str) -> bool:
        """Whether the text may write to the table of this name."""
        return bool(self.effects & Effect.WRITES_ANYTHING) or (
            bool(self.effects & Effect.WRITES)
            and self._words.issuperset(word.upper() for word in _WORD.findall(table))
        )

    # One statement -----------------------------------------------------------------

    def _effects_of(self, statement: Statement, dialect: str) -> Effect:
        first = statement.first
        if first in _QUERIES:
            return self._of_query(statement, dialect)
        if first in _DML:
            return self._of_write(statement, dialect)
        if first in ("SAVEPOINT", "RELEASE"):
            return _of_savepoint(statement, dialect)
        if first in _TRANSACTION:
            return _of_transaction(statement)
        if first == "SET":
            return _of_set(statement, dialect)
        if first in ("RESET", "DISCARD", "USE", "FETCH", "MOVE"):
            return Effect.SETS | Effect.COMMITS
        if first == "PRAGMA":
            return Effect.NOTHING if statement.pragma in PRAGMAS else Effect.SETS
        if first in ("CREATE", "ALTER", "DROP", "RENAME"):
            return _of_definition(statement) | self._called(statement, dialect)
        if first in ("GRANT", "REVOKE"):
            return _of_grant(statement, dialect)
        if first == "PREPARE":
            return Effect.COMMITS if "TRANSACTION" in statement.words[1:2] else Effect.NOTHING
        if first in ("COPY", "LOAD"):
            return Effect.ANYTHING & ~Effect.ALTERS
        runs = _DML | _RUNS | {"INTO"} | (_MAKES if first == "EXPLAIN" else set())
        if first in _UPKEEP and not statement.found & runs:
            settings = self._called(statement, dialect)
            return settings if first in _STAYS else settings | Effect.COMMITS
        return Effect.ANYTHING

    def _of_query(self, statement: Statement, dialect: str) -> Effect:
        effects = self._called(statement, dialect)
        if any(map(statement.is_write, range(len(statement)))):
            effects |= Effect.WRITES
            if "INTO" in statement.found and not statement.found & _DML:  # SELECT INTO
                effects |= Effect.ALTERS | _of_temporary(statement)
            effects |= _of_catalogs(statement)
        return effects

    def _of_write(self, statement: Statement, dialect: str) -> Effect:
        return Effect.WRITES | self._called(statement, dialect) | _of_catalogs(statement)

    def _called(self, statement: Statement, dialect: str) -> Effect:
        """The effects of functions. Unknown ones may be given a text to execute."""
        if dialect == "sqlite" and "LOAD_EXTENSION" not in self._words:
            return Effect.NOTHING  # none of its functions can change a setting
        if statement.calls <= CALLED.get(dialect, frozenset()):
            return Effect.NOTHING
        return Effect.SETS | (Effect.WRITES if self._words & _DML else Effect.NOTHING)


def _of_catalogs(statement: Statement) -> Effect:
    """Further effects of a statement that writes, if it names tables of the system catalogs."""
    named = {word for word in statement.names if _CATALOGS.match(word)}
    if not named:
        return Effect.NOTHING
    return Effect.SETS if named == {"PG_SETTINGS"} else Effect.ANYTHING & ~Effect.COMMITS


def _of_savepoint(statement: Statement, dialect: str) -> Effect:
    if len(statement) > 3 or not statement.is_plain():
        return Effect.ANYTHING
    # The driver of SQLite may have begun with the savepoint: then its release is the commit.
    is_commit = statement.first == "RELEASE" and dialect == "sqlite"
    return Effect.COMMITS if is_commit else Effect.NOTHING


def _of_transaction(statement: Statement) -> Effect:
    words = statement.words
    undoes = statement.first in ("ROLLBACK", "ABORT")
    effects = Effect.UNDOES if undoes else Effect.COMMITS
    if undoes and "TO" in words[1:3] and len(statement) <= 5 and statement.is_plain():
        return effects  # whatever the savepoint's name is
    if words[1:] == ["PREPARED"] and len(statement) == 3:
        return effects
    rest = set(words[1:])
    if not statement.is_plain(",") or not rest <= _OF_TRANSACTION | _LEVELS:
        return Effect.ANYTHING
    return effects | (Effect.SETS if rest & _LEVELS else Effect.NOTHING)


def _of_set(statement: Statement, dialect: str) -> Effect:
    words, found = statement.words, statement.found
    if found & (_DML | _RUNS | {"STATEMENT"}):
        return Effect.ANYTHING
    name = statement.sets_one()
    is_own = "." in name if dialect == "postgresql" else re.fullmatch(r"@\w+", name)
    is_kind = words[1:2] == ["TRANSACTION"] and not found & _LEVELS and statement.is_plain(",")
    if name in SETTINGS or is_own or is_kind:  # READ ONLY, or a setting of the application's own
        return Effect.NOTHING
    if dialect == "postgresql":
        is_local = words[1:2] in (["LOCAL"], ["TRANSACTION"])
        return Effect.SETS_LOCALLY if is_local else Effect.SETS
    if "TRANSACTION" in found and "SESSION" not in found:  # of the next one
        return Effect.SETS | Effect.SETS_UNSEEN | Effect.COMMITS
    return Effect.SETS | Effect.COMMITS


def _of_definition(statement: Statement) -> Effect:
    kind = next((word for word in statement.words[1:] if word not in _ADJECTIVES), "")
    if kind == "INDEX" and statement.first in ("CREATE", "DROP"):
        return Effect.COMMITS
    effects = Effect.WRITES | Effect.ALTERS | Effect.COMMITS | _of_temporary(statement)
    is_named = kind in _NAMED or (statement.first == "CREATE" and _is_new(statement, kind))
    if statement.found & _RUNS or not is_named:
        effects |= Effect.WRITES_ANYTHING | Effect.SETS
    return effects


def _is_new(statement: Statement, kind: str) -> bool:
    """Whether nothing can lead to the new object before another text names it too."""
    if kind == "SCHEMA":  # that is empty
        return statement.is_plain() and statement.words.count("CREATE") == 1
    if kind == "TYPE":
        return statement.words[-2:] == ["AS", "ENUM"]
    if kind == "EXTENSION":
        place = 5 if statement.words[2:5] == ["IF", "NOT", "EXISTS"] else 2
        return not {*statement.texts[place : place + 1]}.isdisjoint(EXTENSIONS)
    return False


def _of_temporary(statement: Statement) -> Effect:
    """Effects of a temporary table, which hides another one of its name."""
    is_temporary = statement.names & {"TEMP", "TEMPORARY", "PG_TEMP"}
    return Effect.SETS | Effect.SETS_UNSEEN if is_temporary else Effect.NOTHING


def _of_grant(statement: Statement, dialect: str) -> Effect:
    """In PostgreSQL a schema that must not be used is passed over when a name is looked for."""
    found = statement.found
    leads_elsewhere = dialect == "postgresql" and ("SCHEMA" in found or "ON" not in found)
    return Effect.ANYTHING if leads_elsewhere else Effect.COMMITS
