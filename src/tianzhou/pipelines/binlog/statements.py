"""SQL statements in a binlog, and their effect on captured tables. Pure.

A server that logs rows logs other changes as statements. A statement that changes rows is in the binlog only if a
session has set another format. It is rejected, because triggers and functions may change any table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

Table = tuple[str, str]
"""Schema and name of a table."""
_TOKEN: Final = re.compile(
    r"""\s+|(?P<comment>--[\s\x00][^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/)|(?P<opening>/\*M?!\d*)|(?P<closing>\*/)
    |`(?P<quoted>(?:[^`]|``)*)`|(?P<text>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")|(?P<word>[\w$@]+)|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_CHANGES_NO_ROWS: Final = {
    "BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "START", "SET", "XA",
    "CREATE", "DROP", "ALTER", "GRANT", "REVOKE", "FLUSH", "ANALYZE", "OPTIMIZE", "CHECK", "REPAIR", "RENAME", "USE",
    "INSTALL", "UNINSTALL", "LOCK", "UNLOCK", "RESET", "CHANGE", "KILL", "PURGE", "CACHE", "SHUTDOWN", "BACKUP",
}  # fmt: skip
"""First words of statements that a server logs in addition to row events."""
_KEEPS_ROWS: Final = [
    re.compile(pattern)
    for pattern in (
        r"ADD (UNIQUE |FULLTEXT |SPATIAL )?(INDEX|KEY)\b", r"ADD (UNIQUE|FULLTEXT|SPATIAL)\b",
        r"DROP (INDEX|KEY) (?!(?i:primary)\b)",
        r"ADD (CONSTRAINT \S+ |CONSTRAINT )?(FOREIGN|CHECK|UNIQUE)\b", r"DROP (FOREIGN|CHECK)\b",
        r"DROP CONSTRAINT (?!(?i:primary)\b)",
        r"RENAME (INDEX|KEY)\b", r"ALTER (INDEX|CONSTRAINT|CHECK)\b", r"ALTER (COLUMN )?\S+ (SET|DROP) DEFAULT\b",
        r"COMMENT\b", r"AUTO_INCREMENT\b", r"ROW_FORMAT\b", r"STATS_\w+", r"FORCE\b", r"ORDER\b", r"ALGORITHM\b",
        r"LOCK\b", r"(DISABLE|ENABLE) KEYS\b", r"(ANALYZE|OPTIMIZE|CHECK|REBUILD|REPAIR) PARTITION\b",
        r"ADD PARTITION\b", r"ENGINE\b", r"NOWAIT\b", r"WAIT\b", r"KEY_BLOCK_SIZE\b",
        r"(MAX|MIN)_ROWS\b", r"AVG_ROW_LENGTH\b", r"CHECKSUM\b", r"PACK_KEYS\b",
    )
]  # fmt: skip
"""Actions of ALTER TABLE that change no row."""
_OTHER_ENGINE: Final = re.compile(r"\bENGINE (?:= )?+(?!INNODB\b|ARIA\b|MYISAM\b|ROCKSDB\b|MEMORY\b)")


@dataclass(frozen=True)
class Truncated:
    """A statement that empties a captured table.

    Attributes:
        table: the table.
    """

    table: Table


@dataclass(frozen=True)
class StatementRefused:
    """A statement that row events do not describe.

    Attributes:
        table: the captured table; None if it may be any table.
        reason: the reason, for messages.
    """

    table: Table | None
    reason: str


@dataclass(frozen=True)
class Token:
    """A word of a statement.

    Attributes:
        text: the word, a name without its quotes.
        is_name: whether the word was quoted, so that it is not a keyword.
    """

    text: str
    is_name: bool = False

    @property
    def keyword(self) -> str:
        """The word in upper case; empty for a quoted name."""
        return "" if self.is_name else self.text.upper()


def tokens_of(statement: str) -> list[Token]:
    """Return the words of a statement without comments. The text of an executable comment is included."""
    return list(_tokens(statement))


def _tokens(statement: str) -> Iterator[Token]:
    for found in _TOKEN.finditer(statement):
        kind = found.lastgroup
        if kind == "quoted":
            yield Token(found["quoted"].replace("``", "`"), is_name=True)
        elif kind == "text":
            yield Token(found["text"], is_name=True)
        elif kind in ("word", "other"):
            yield Token(found[kind])


def effect(
    statement: str, schema: str, captured: Collection[Table], *, rows_before: bool, any_case: bool = False
) -> Truncated | StatementRefused | None:
    """Return the effect of a statement on captured tables; None if row events describe it completely.

    Args:
        statement: the SQL.
        schema: the session's default schema.
        captured: the tables.
        rows_before: whether row events of captured tables came before it in its transaction.
        any_case: whether the server folds names of tables to lower case.
    """
    tokens = tokens_of(statement)
    if [token.keyword for token in tokens[:2]] == ["SET", "STATEMENT"]:
        tokens = tokens[next((at + 1 for at, token in enumerate(tokens) if token.keyword == "FOR"), 0) :]
    if any_case:
        schema, tokens = schema.lower(), [Token(token.text.lower(), token.is_name) for token in tokens]
    first = tokens[0].keyword if tokens else ""
    second = tokens[1].keyword if len(tokens) > 1 else ""
    if not first or first == ";":
        return None
    if first == "ROLLBACK":
        return StatementRefused(None, "rolls a transaction back whose rows were logged") if rows_before else None
    if first == "TRUNCATE":
        table = _name(tokens, 2 if second == "TABLE" else 1, schema)[0]
        return Truncated(table) if table in captured else None
    if first == "DELETE" and second == "FROM":
        # A server logs this statement to empty a MEMORY table that it opens for the first time.
        table, end = _name(tokens, 2, schema)
        if all(token.text == ";" for token in tokens[end:]):
            return Truncated(table) if table in captured else None
    if first not in _CHANGES_NO_ROWS:
        return StatementRefused(None, "is logged as a statement, and not as the rows it changed")
    named = [table for table in _names(tokens, schema) if table in captured]
    if first == "DROP" and second in ("DATABASE", "SCHEMA"):
        gone = {token.text for token in tokens[2:]}
        named = [table for table in captured if table[0] in gone]
        return StatementRefused(named[0], "drops the schema") if named else None
    if not named:
        return None
    return _changes_of_table(tokens, first, named[0], schema)


def _changes_of_table(tokens: list[Token], first: str, table: Table, schema: str) -> StatementRefused | None:
    words = [token.keyword for token in tokens]
    if first == "RENAME" and words[1] != "USER":
        return StatementRefused(table, "renames the table")
    if first == "DROP" and "TEMPORARY" not in words[:3] and _is_table(words):
        return StatementRefused(table, "drops the table")
    if first == "CREATE" and _is_table(words) and _name(tokens, _after_table(words), schema)[0] == table:
        return None if words[words.index("TABLE") + 1] == "IF" else StatementRefused(table, "makes the table again")
    if first == "DROP" and words[1] == "INDEX" and tokens[2].text.upper() == "PRIMARY":
        return StatementRefused(table, "drops the primary key")
    if first == "REPAIR":
        return StatementRefused(table, "repairs the table, which may lose rows")
    if first == "ALTER" and "TABLE" in words[:4]:
        name, end = _name(tokens, _after_table(words), schema)
        if name != table:
            return StatementRefused(table, "changes it from another table") if "EXCHANGE" in words else None
        if "IGNORE" in words[: words.index("TABLE")]:
            return StatementRefused(table, "changes it and ignores errors, which may lose rows")
        for action in _actions(tokens[end:]):
            if _OTHER_ENGINE.search(action) or not any(pattern.match(action) for pattern in _KEEPS_ROWS):
                return StatementRefused(table, f"changes its columns, keys, name or rows ({action[:60].strip()})")
    return None


def _is_table(words: list[str]) -> bool:
    return "TABLE" in words[:4] or "TABLES" in words[:3]


def _after_table(words: list[str]) -> int:
    """Return the index of the name after TABLE, which IF [NOT] EXISTS may follow."""
    at = words.index("TABLE") + 1
    while words[at] in ("IF", "NOT", "EXISTS"):
        at += 1
    return at


def _actions(tokens: list[Token]) -> Iterator[str]:
    """Yield the actions of an ALTER TABLE, which are separated by commas outside parentheses, in upper case."""
    action: list[str] = []
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.keyword, 0)
        if token.keyword in (",", ";") and not depth:
            if action:
                yield " ".join(action)
            action = []
        else:
            action.append(token.keyword or "".join(token.text.split()) or "``")
    if action:
        yield " ".join(action)


def _name(tokens: list[Token], at: int, schema: str) -> tuple[Table, int]:
    """Return the table's name at an index, and the index after it."""
    if at >= len(tokens):
        return (schema, ""), at
    if at + 2 < len(tokens) and tokens[at + 1].text == "." and not tokens[at + 1].is_name:
        return (tokens[at].text, tokens[at + 2].text), at + 3
    return (schema, tokens[at].text), at + 1


def _names(tokens: list[Token], schema: str) -> Iterator[Table]:
    """Yield every word, and every pair of words with a dot between them, as if it were a table's name."""
    for at in range(len(tokens)):
        yield _name(tokens, at, schema)[0]
