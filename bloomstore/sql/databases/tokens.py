"""Cuts the text of SQL into statements and tokens, by the rules of each kind of database.

In: text, and the name of a dialect. Out: statements, or None where the text might be cut in another
way: then nothing is known of it. None is the answer to
  1. what is not closed: a quote, a comment, a dollar quote;
  2. a backslash before a closing quote: whether it ends the text depends on a setting;
  3. a comment inside a comment, which databases end differently, and one that MariaDB executes;
  4. names with escapes (U&"..."), backslashes outside quotes, control characters;
  5. a $ that neither continues a word, nor begins a dollar quote of PostgreSQL, nor a parameter
     that a word or another $ does not touch; a variable of SQLite that a parenthesis touches,
     because what stands in it is a part of its name; a byte order mark, which SQLite passes over.
An unknown dialect is cut by no rules at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Every character beyond ASCII is a letter, whatever Unicode says of it.
_LETTERS = r"A-Za-z_\x80-\U0010ffff"
_IN_WORD = rf"[{_LETTERS}0-9$]"
_COMMON = r"""
    (?P<space>[ \t\r\n\f]+)
  | (?P<doubt>/\*M?! | [uU]&["'] | [0-9]{in_word}*?\$ | [\x00-\x1f\x7f\\\ufeff] {doubts})
  | (?P<comment>/\*.*?\*/ {comments})
  | (?P<string>'(?:[^']|'')*' {strings})
  | (?P<name>"(?:[^"]|"")*" {names})
  | (?P<word>__\[\w+\] | \$[0-9]+(?!{in_word}) | (?!\$){in_word}+)  # SQLAlchemy fills the first in
  | (?P<end>;)
  | (?P<open>['"`$] | /\*)
  | (?P<other>.)
"""


def _pattern(
    comments: str, strings: str = "", names: str = "", doubts: str = ""
) -> re.Pattern[str]:
    text = _COMMON.format(
        comments=comments, strings=strings, names=names, doubts=doubts, in_word=_IN_WORD
    )
    return re.compile(text, re.VERBOSE | re.DOTALL)


_BACKTICKS = "| `(?:[^`]|``)*`"
_MARIADB = _pattern(r"| --(?=[\x00-\x20]|$)[^\n]* | \#[^\n]*", names=_BACKTICKS)
_PATTERNS = {
    "postgresql": _pattern(
        r"| --[^\n\r]*",
        strings=rf"| \$(?P<tag>(?:[{_LETTERS}][{_LETTERS}0-9]*)?)\$.*?\$(?P=tag)\$",
    ),
    "mysql": _MARIADB,
    "mariadb": _MARIADB,
    "sqlite": _pattern(
        r"| --[^\n]*",
        names=_BACKTICKS + r"| \[[^\]]*\]",
        doubts=rf"| [$@\#:](?:{_IN_WORD}|::)+\(",
    ),
}
_VERBS = frozenset("INSERT UPDATE DELETE MERGE REPLACE".split())
_FUNCTIONS_TOO = frozenset("INSERT REPLACE".split())  # of strings
# After these a name with a parenthesis is a table, or another name of one, with its columns; or a
# type, after AS. No database takes an expression there. Where one may stand, as behind the
# parenthesis of DISTINCT ON (...), a name of columns is taken for a function: that is doubt only.
_BEFORE_NAMES = frozenset("INTO TABLE WITH RECURSIVE AS REFERENCES".split())


class Statement:
    """The tokens of one statement.

    `kinds` has a letter for each: w a word, n a quoted name, s a string; other characters are
    their own kind. Words and names are in upper case if they are of ASCII: no database takes
    another letter for one of ASCII, as Python does with a long s.
    """

    __slots__ = ("calls", "first", "found", "kinds", "names", "texts", "words")

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.kinds = [kind for kind, _ in tokens]
        self.texts = [text for _, text in tokens]
        self.words = [text for kind, text in tokens if kind == "w"]
        self.found = frozenset(self.words)
        self.names = self.found | {text for kind, text in tokens if kind == "n"}
        begins = next((place for place, kind in enumerate(self.kinds) if kind != "("), None)
        is_word = begins is not None and self.kinds[begins] == "w"
        self.first = self.texts[begins] if is_word and begins is not None else ""
        self.calls = frozenset(self._calls())

    def __len__(self) -> int:
        return len(self.kinds)

    def _calls(self) -> Iterator[str]:
        """The names before a parenthesis, as of functions, with their schemas."""
        for place in range(1, len(self)):
            if self.kinds[place] != "(" or self.kinds[place - 1] not in ("w", "n"):
                continue
            name, of, begins = self.texts[place - 1], "", place - 1
            while self.kinds[max(0, begins - 1)] == "." and begins >= 2:
                of, begins = self.texts[begins - 2], begins - 2
            is_word = begins > 0 and self.kinds[begins - 1] == "w"
            if is_word and self.texts[begins - 1] in _BEFORE_NAMES:
                continue
            is_own = self.kinds[place - 1] == "w" and of in ("", "PG_CATALOG")
            yield name if is_own else f"{of}.{name}"

    @property
    def pragma(self) -> str:
        """The name that stands behind PRAGMA, without that of a database."""
        place = 3 if self.kinds[2:3] == ["."] else 1
        return "".join(self.texts[place : place + 1])

    def is_plain(self, *more: str) -> bool:
        """Whether it is made of words and names, and of nothing else but these."""
        return set(self.kinds) <= {"w", "n", *more}

    def is_verb(self, place: int) -> bool:
        """Whether a statement begins here, or one inside this one, that changes rows."""
        return (
            self.kinds[place] == "w"
            and self.texts[place] in _VERBS
            and not self._is_function(place)
            and (place == 0 or self.kinds[place - 1] in ("(", ")"))
        )

    def is_write(self, place: int) -> bool:
        """Whether this word of a query may write rows. FOR UPDATE locks them."""
        word = self.texts[place]
        if self.kinds[place] != "w" or word not in _VERBS | {"INTO"} or word == "DELETE":
            return False
        before = self.texts[max(0, place - 3) : place]
        locks = word == "UPDATE" and (before[-1:] == ["FOR"] or before == ["FOR", "NO", "KEY"])
        return not locks and not self._is_function(place)

    def _is_function(self, place: int) -> bool:
        return self.texts[place] in _FUNCTIONS_TOO and self.kinds[place + 1 : place + 2] == ["("]

    def sets_one(self) -> str:
        """The name of the one setting that a SET sets to a plain value; "" if it does more."""
        begins = 2 if self.texts[1:2] in (["SESSION"], ["LOCAL"]) else 1
        kinds, texts = self.kinds[begins:], self.texts[begins:]
        ends = next((place for place, text in enumerate(texts) if text in ("=", "TO")), 0)
        value = ends + (2 if texts[ends + 1 : ends + 2] in (["-"], ["+"]) else 1)
        is_one = kinds[value:] in (["w"], ["s"]) and set(kinds[:ends]) <= {"w", ".", "@"}
        return "".join(texts[:ends]) if is_one else ""


def statements_of(sql: str, dialect: str) -> list[Statement] | None:
    """The statements of a text without empty ones; None if it is not certain where they end."""
    pattern = _PATTERNS.get(dialect)
    if pattern is None:
        return None
    found: list[Statement] = []
    tokens: list[tuple[str, str]] = []
    for match in pattern.finditer(sql):
        kind, text = str(match.lastgroup), match[0]
        if kind == "tag":
            kind = "string"
        if kind in ("doubt", "open") or _is_ambiguous(kind, text, dialect):
            return None
        if kind == "word":
            tokens.append(("w", _upper(text)))
        elif kind == "name":
            tokens.append(("n", _upper(text[1:-1])))
        elif kind == "string":
            tokens.append(("s", ""))
        elif kind == "other":
            tokens.append((text, text))
        elif kind == "end" and tokens:
            found.append(Statement(tokens))
            tokens = []
    if tokens:
        found.append(Statement(tokens))
    return found


def _upper(text: str) -> str:
    return text.upper() if text.isascii() else text


def _is_ambiguous(kind: str, text: str, dialect: str) -> bool:
    if kind == "comment":
        return text.startswith("/*") and "/*" in text[2:]
    if kind in ("string", "name") and dialect != "sqlite":
        return not text.startswith("$") and "\\" + text[0] in text
    return False
