"""Which guarded tables a statement of text may write to.

Text has no structure here, so the rule is coarse: a table whose name occurs as a word in text that
may write is written to. Text that cannot write names nobody.
"""

from __future__ import annotations

import re

_LEADING = re.compile(r"(?:\s|/\*.*?\*/|--[^\n]*(?:\n|$)|\()*(\w*)", re.DOTALL)
_WORD = re.compile(r"\w+")
_READS = frozenset(
    """SELECT SHOW SET PRAGMA EXPLAIN SAVEPOINT RELEASE BEGIN START COMMIT END ROLLBACK WITH VALUES
    DESCRIBE DESC ANALYZE VACUUM TABLE FETCH CLOSE DECLARE LISTEN NOTIFY UNLISTEN DISCARD RESET
    LOCK UNLOCK USE CHECKPOINT REINDEX COMMENT GRANT REVOKE DROP TRUNCATE DELETE XA""".split()
)
_WRITES = frozenset("INSERT UPDATE MERGE REPLACE COPY LOAD CALL DO EXEC EXECUTE INTO".split())
_ANYTHING = frozenset("CALL DO EXEC EXECUTE COPY LOAD IMPORT ATTACH".split())
# What answers and keys rely on, and the words that may change it.
_SETTINGS = frozenset("SERIALIZABLE UNCOMMITTED SEARCH_PATH SQL_MODE SCHEMA".split())
_SETS = frozenset("SET BEGIN START ALTER".split())
_ALTERS = frozenset("ALTER DROP RENAME CREATE".split())
# After these the transaction goes on, in every database; DDL commits in some.
_STAYS = frozenset(
    """SELECT INSERT UPDATE DELETE REPLACE MERGE WITH VALUES SAVEPOINT RELEASE PRAGMA SHOW EXPLAIN
    ROLLBACK""".split()
)


class Text:
    """What one text may do: which tables it may write to, whether it may end the transaction."""

    __slots__ = (
        "_words",
        "changes_engine",
        "changes_settings",
        "is_temporary",
        "may_alter",
        "may_commit",
        "may_write",
        "releases",
        "writes_anything",
    )

    def __init__(self, sql: str) -> None:
        words = [word.upper() for word in _WORD.findall(sql)]
        found = frozenset(words)
        leading = _LEADING.match(sql)
        first = leading[1].upper() if leading else ""
        writes = found & _WRITES
        if writes == {"UPDATE"} and first in ("SELECT", "WITH", "VALUES"):
            locks = all(
                words[place - 1] == "FOR" or words[place - 3 : place] == ["FOR", "NO", "KEY"]
                for place, word in enumerate(words)
                if word == "UPDATE"
            )
            writes = frozenset() if locks else writes
        is_index = first == "CREATE" and "INDEX" in words[1:3]
        self._words = found
        self.changes_settings = first == "USE" or (
            "SET_CONFIG" in found or (bool(found & _SETTINGS) and first in _SETS)
        )
        # What outlives the transaction stays with the connection when the pool lends it again.
        self.changes_engine = self.changes_settings and "TRANSACTION" not in words[:2]
        self.may_write = bool(words) and (bool(writes) or not (first in _READS or is_index))
        self.may_alter = first not in _STAYS | {"COPY", "LOAD"} or bool(found & _ALTERS)
        self.may_commit = first not in _STAYS or bool(found & {"COMMIT", "PREPARE"})
        self.releases = first == "RELEASE"
        # A label of an enum, a schema: what is renamed is not the table.
        alters_more = first == "ALTER" and words[1:2] in (["TYPE"], ["DOMAIN"], ["SCHEMA"])
        self.writes_anything = self.may_write and (bool(found & _ANYTHING) or alters_more)
        self.is_temporary = self.may_write and bool(found & {"TEMP", "TEMPORARY"})

    def writes_to(self, table: str) -> bool:
        """Whether the text may write to the table of this name."""
        return self.may_write and (
            self.writes_anything
            or self._words.issuperset(word.upper() for word in _WORD.findall(table))
        )
