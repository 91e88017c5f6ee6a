"""The table of processed ids: its names, its SQL in three dialects, and the order of its statements.

Generators decide which statements run. A shell executes each `StatementStep` on its connection and sends the
`StatementOutcome` back, so the same decisions serve blocking and async connections.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from tianzhou.errors import ClientError, ConfigError

T = TypeVar("T")

MAX_ID_CHARACTERS = 255
"""Width of the column `id`. Longer ids are stored as a hash."""
PURGE_ROWS = 1_000
"""Maximum number of expired rows that one statement deletes."""
HASH_PREFIX = "sha256:"
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
_PLAIN_ID = re.compile(r"[\x20-\x7e]*")
_PLACE = re.compile(r":([a-z_]+)")


class Dialect(enum.Enum):
    """A database whose SQL is known. MariaDB speaks MySQL's."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"


class StatementStep(NamedTuple):
    """A statement to execute.

    Attributes:
        sql: the statement, with `:name` where a value goes.
        values: the values by name.
        may_collide: whether the driver's `IntegrityError` is a normal outcome.
    """

    sql: str
    values: Mapping[str, str | int]
    may_collide: bool = False


class TransactionEnd(enum.Enum):
    """An end of the transaction. The next step begins another one."""

    COMMIT = enum.auto()
    ROLLBACK = enum.auto()


class StatementOutcome(NamedTuple):
    """The outcome of a statement.

    Attributes:
        changed: number of rows that the statement inserted or deleted.
        rows: rows that the statement returned.
        collision: the driver's `IntegrityError` of a step that may collide.
    """

    changed: int = 0
    rows: tuple[tuple[object, ...], ...] = ()
    collision: Exception | None = None


Steps: TypeAlias = Generator["StatementStep | TransactionEnd", StatementOutcome, T]


def row_id(scope: str, key: str) -> str:
    """Return the id of a message in its row.

    The id is `scope:key` as long as every database stores and compares it exactly: printable ASCII, at most 255
    characters. Any other id is the SHA-256 of it.

    Args:
        scope: text before the key, such as the consumer group.
        key: the message's key.
    """
    text = f"{scope}:{key}"
    if len(text) <= MAX_ID_CHARACTERS and _PLAIN_ID.fullmatch(text) and not text.startswith(HASH_PREFIX):
        return text
    return HASH_PREFIX + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def in_pyformat(sql: str) -> str:
    """Return a statement with `%(name)s` where a value goes."""
    return _PLACE.sub(r"%(\1)s", sql)


@dataclass(frozen=True)
class IdTable:
    """The SQL of a table of processed ids.

    Args:
        dialect: the database's SQL.
        name: name of the table, with a schema before a dot where it is in one.

    Attributes:
        create: statements that create the table and its index of expiry times.

    Raises:
        ConfigError: the name is no plain name.
    """

    dialect: Dialect
    name: str
    create: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not _TABLE_NAME.fullmatch(self.name):
            raise ConfigError(
                f"DatabaseIds: table is {self.name!r}; use letters, digits and underscores, at most 63, with a schema "
                "before a dot where the table is in one"
            )
        start = f"CREATE TABLE IF NOT EXISTS {self.name}"
        expiry = "until_ms BIGINT NOT NULL"
        if self.dialect is Dialect.MYSQL:
            # Text columns of MySQL compare 'a', 'A' and 'a ' as equal. VARBINARY compares the bytes.
            id_ = f"id VARBINARY({MAX_ID_CHARACTERS}) NOT NULL PRIMARY KEY"
            create = [f"{start} ({id_}, {expiry}, INDEX {self._index} (until_ms)) ENGINE=InnoDB"]
        else:
            id_ = f"id VARCHAR({MAX_ID_CHARACTERS}) NOT NULL PRIMARY KEY"
            create = [f"{start} ({id_}, {expiry})", f"CREATE INDEX IF NOT EXISTS {self._index_place} (until_ms)"]
        object.__setattr__(self, "create", tuple(create))

    @property
    def _index(self) -> str:
        # PostgreSQL cuts names off at 63 bytes.
        return f"{self.name.rpartition('.')[2][:54]}_until_ms"

    @property
    def _index_place(self) -> str:
        schema, _, name = self.name.rpartition(".")
        if self.dialect is Dialect.SQLITE and schema:  # the schema of an index stands before its own name there
            return f"{schema}.{self._index} ON {name}"
        return f"{self._index} ON {self.name}"

    def insert(self, id_: str, until_ms: int) -> StatementStep:
        """Return the step that inserts a row unless its id is there: one row changed, or none, or a collision."""
        sql = f"INSERT INTO {self.name} (id, until_ms) VALUES (:id, :until_ms)"
        values: dict[str, str | int] = {"id": id_, "until_ms": until_ms}
        if self.dialect is Dialect.MYSQL:
            # IGNORE would also ignore other errors, and ON DUPLICATE KEY counts rows by the connection's flags. A
            # collision rolls this statement back and leaves the transaction open.
            return StatementStep(sql, values, may_collide=True)
        return StatementStep(f"{sql} ON CONFLICT DO NOTHING", values)

    def find(self, id_: str) -> StatementStep:
        """Return the step that reads the last committed row of an id."""
        sql = f"SELECT id, until_ms FROM {self.name} WHERE id = :id"
        if self.dialect is Dialect.MYSQL:
            sql += " LOCK IN SHARE MODE"
        return StatementStep(sql, {"id": id_})

    def delete(self, id_: str) -> StatementStep:
        """Return the step that deletes the row of an id."""
        return StatementStep(f"DELETE FROM {self.name} WHERE id = :id", {"id": id_})

    def purge(self, now_ms: int) -> StatementStep:
        """Return the step that deletes the rows that expired first, `PURGE_ROWS` at most."""
        expired = "WHERE until_ms <= :now_ms ORDER BY until_ms LIMIT :most"
        if self.dialect is Dialect.MYSQL:
            sql = f"DELETE FROM {self.name} {expired}"
        else:
            # Rows that another process deletes at the same time are left to that process.
            skip = " FOR UPDATE SKIP LOCKED" if self.dialect is Dialect.POSTGRESQL else ""
            sql = f"DELETE FROM {self.name} WHERE id IN (SELECT id FROM {self.name} {expired}{skip})"
        return StatementStep(sql, {"now_ms": now_ms, "most": PURGE_ROWS})


def insert_ids(table: IdTable, ids: Iterable[str], until_ms: int) -> Steps[dict[str, int]]:
    """Insert the rows of ids, in the transaction of the work.

    The order is the same in every process, so two processes whose lists share ids wait for each other and do not
    deadlock.

    Args:
        table: the table.
        ids: ids of the messages, see `row_id`.
        until_ms: time of expiry, milliseconds since the epoch.

    Returns:
        The ids that are processed already, with their time of expiry.

    Raises:
        ConfigError: the table compares different ids as equal.
        ClientError: a row was neither inserted nor found.
    """
    known: dict[str, int] = {}
    for id_ in sorted(set(ids)):
        inserted = yield table.insert(id_, until_ms)
        if inserted.changed == 1:
            continue
        found = yield from _find(table, id_)
        if found is None:
            # Another constraint of the table refused the row, or a purge has just deleted the row of this id.
            raise inserted.collision or ClientError(
                f"DatabaseIds: table {table.name} refuses the row of {id_!r} and has no such row: the row expired just "
                "now, or another unique constraint or a trigger of the table refuses it and has to be removed. The "
                "message comes again"
            )
        known[id_] = found
    return known


def delete_ids(table: IdTable, ids: Iterable[str]) -> Steps[None]:
    """Delete rows that `insert_ids` inserted, because their messages will be delivered again."""
    for id_ in sorted(ids):
        yield table.delete(id_)


def purge_expired(table: IdTable, now_ms: int) -> Steps[int]:
    """Delete some expired rows and return their number."""
    deleted = yield table.purge(now_ms)
    yield TransactionEnd.COMMIT
    return deleted.changed


def prepare_table(table: IdTable, probe_id: str, now_ms: int, *, create: bool) -> Steps[None]:
    """Create the table when it is missing, and check that a roll-back removes an inserted row.

    A connection that commits each statement (autocommit) and a storage engine without transactions would keep the id of
    a message whose work failed.

    Args:
        table: the table.
        probe_id: an id that no other process uses.
        now_ms: present time; it is also the expiry of a probe that is left behind.
        create: whether to create the table.

    Raises:
        ConfigError: the table is missing, cannot be created, or does not roll back.
    """
    try:
        yield from _find(table, probe_id)
    except Exception as missing:  # the errors of drivers have no base class in common
        yield TransactionEnd.ROLLBACK
        if not create:
            raise ConfigError(_without_table(table, missing)) from missing
        try:
            for statement in table.create:
                yield StatementStep(statement, {})
            yield TransactionEnd.COMMIT
        except Exception as refused:  # noqa: BLE001 - as above
            yield TransactionEnd.ROLLBACK
            try:  # two processes that create a table at the same time can fail, although one succeeds
                yield from _find(table, probe_id)
            except Exception:  # noqa: BLE001 - the first error is the cause
                raise ConfigError(_without_table(table, refused)) from refused
    yield TransactionEnd.ROLLBACK
    yield table.insert(probe_id, now_ms)
    yield TransactionEnd.ROLLBACK
    found = yield from _find(table, probe_id)
    if found is not None:
        yield table.delete(probe_id)
        yield TransactionEnd.COMMIT
        raise ConfigError(
            f"DatabaseIds: a row of table {table.name} stays after a roll-back, so the id of a message would stay when "
            "its work fails. The connection commits each statement by itself, or the table's storage engine has no "
            "transactions: remove autocommit (isolation_level=None of sqlite3, AUTOCOMMIT of SQLAlchemy), or use InnoDB"
        )
    yield TransactionEnd.ROLLBACK


def _find(table: IdTable, id_: str) -> Steps[int | None]:
    found = yield table.find(id_)
    if not found.rows:
        return None
    stored, until_ms = found.rows[0]
    text = stored.decode() if isinstance(stored, bytes) else str(stored)
    if text != id_:
        raise ConfigError(
            f"DatabaseIds: table {table.name} compares {id_!r} and {text!r} as equal, so one of these messages would "
            f"never be processed; create the table by: {'; '.join(table.create)}"
        )
    return int(str(until_ms))


def _without_table(table: IdTable, error: Exception) -> str:
    return (
        f"DatabaseIds: table {table.name} cannot be used ({type(error).__name__}: {error}); grant this user the right "
        f"to create it, or have an administrator create it: {'; '.join(table.create)}"
    )
