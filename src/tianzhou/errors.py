"""The tree of errors.

All public errors derive from `TianzhouError`. Their class attributes describe how to handle them, so callers need no
lists of classes: whether a retry can help (`retriable`), whether to refresh the topic's route before the retry
(`refresh_route`), and which response code a server sends for the error (`response_code`, wire.md §2).

Expected outcomes (flush timeouts, "no new message") are statuses in `tianzhou.model`, not errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar


class TianzhouError(Exception):
    """Base class of all errors that Tianzhou raises intentionally."""

    retriable: ClassVar[bool] = False
    refresh_route: ClassVar[bool] = False
    response_code: ClassVar[int] = 1


class ConfigError(TianzhouError):
    """Settings, options or files are invalid. The text has each key, its value and the valid values.

    Args:
        texts: one sentence per fault. Several sentences are printed as a list, one per line.
    """

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        super().__init__(*texts)

    def __str__(self) -> str:
        if len(self.texts) < 2:
            return "".join(self.texts)
        return f"{len(self.texts)} faults:" + "".join(f"\n  {text}" for text in self.texts)


class Faults:
    """A collector of the faults in a configuration.

    Args:
        prefix: prefix of each fault's text, such as the name of the source.

    Attributes:
        texts: one sentence per fault.
        keys: keys whose values are faulty. A check of several keys skips faults whose text contains one of them.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.texts: list[str] = []
        self.keys: set[str] = set()

    @classmethod
    def of(cls, given: Faults | None) -> Faults:
        """Return the given collection, or a new one."""
        return cls() if given is None else given

    def note(self, text: str, key: str = "") -> None:
        """Add a fault.

        Args:
            text: a sentence that names the source, the value and the remedy.
            key: the key whose value is faulty.
        """
        if (whole := self._prefix + text) not in self.texts:
            self.texts.append(whole)
        if key:
            self.keys.add(key)

    @contextmanager
    def noted(self, key: str = "") -> Iterator[None]:
        """Collect the faults of a `ConfigError` that the block raises. The block ends at the error.

        Args:
            key: the key whose value the block checks.
        """
        try:
            yield
        except ConfigError as error:
            for text in error.texts:
                self.note(text, key)

    def mentioned(self, text: str) -> bool:
        """Whether a text names a key with a faulty value, so that its fault may be a consequence of that value."""
        return any(key in text for key in self.keys)

    def check(self) -> None:
        """Raise one error for all faults.

        Raises:
            ConfigError: faults were collected; the error lists all of them.
        """
        if self.texts:
            raise ConfigError(*self.texts)


class SettingFixed(ConfigError):
    """A setting cannot be changed while the server runs, or by any request; the text has the way to set it."""

    response_code = 16


class RemotingError(TianzhouError):
    """A failure between two processes, below the level of a request."""

    retriable = True


class ConnectFailed(RemotingError):
    """No connection to the address was established within the connect timeout."""

    refresh_route = True


class ConnectionLost(RemotingError):
    """The connection ended before the reply arrived; whether the server executed the request is unknown."""

    refresh_route = True


class RequestTimeout(RemotingError):
    """No reply arrived in time; whether the server executed the request is unknown."""


class ReplyTimeout(RequestTimeout):
    """A request message was stored, but no reply message arrived in time (RocketMQ's client code 10006)."""


class TooManyRequests(RemotingError):
    """The client has more in-flight requests than its limit allows (wire.md §1.8)."""


class ProtocolError(RemotingError):
    """Bytes that violate the protocol; their connection is closed (wire.md §1.1)."""

    retriable = False


class BodyTooLarge(ProtocolError):
    """A compressed body decompresses to more than the accepted size."""


class HeaderFieldError(ProtocolError):
    """A header field is missing or invalid. The request is answered, and the connection stays open (wire.md §1.4)."""


class BrokerError(TianzhouError):
    """A server replied to a request with a code that means failure.

    Args:
        code: the response code (wire.md §2).
        remark: the server's text.
        hint: the remedy for the caller, appended to the message; empty for none.
        address: the server's `host:port`, if known.
    """

    def __init__(self, code: int, remark: str = "", *, hint: str = "", address: str = "") -> None:
        self.code = code
        self.remark = remark
        self.hint = hint
        self.address = address
        where = f" from {address}" if address else ""
        super().__init__(f"code {code}{where}: {remark}" + (f" ({hint})" if hint else ""))


class ClientError(TianzhouError):
    """The client was used in a way that it does not support; no request was sent."""

    response_code = 13


class CallbackExit(ClientError):
    """A callback of the user raised an exception that ends the program or a task; `__cause__` is that exception.

    `SystemExit`, `KeyboardInterrupt`, `GeneratorExit` and `asyncio.CancelledError` are such exceptions. The callback
    counts as failed, as after any other exception.
    """


class UnknownTopic(ClientError):
    """No name server knows the topic."""

    response_code = 17


class AlreadyExists(ClientError):
    """A topic or group to create exists already; nothing was changed."""

    response_code = 1


class OffsetOutsideQueue(ClientError):
    """A group cannot continue at an offset, because the offset is outside a queue's range."""

    response_code = 1


class TopicUnavailable(ClientError):
    """The topic has no queue to send to now: it does not exist, or its brokers are gone."""


class NoWritableQueue(TopicUnavailable):
    """The topic exists, but no queue of it accepts messages now: its brokers have no master, or are read-only."""

    retriable = True


class RateLimited(ClientError):
    """A producer's own limit (`send_rate`, `send_rate_bytes`) granted no token before the timeout of the send.

    A send that a broker's limit refuses raises a `BrokerError` of code 2 (SYSTEM_BUSY).
    """

    retriable = True
    response_code = 2


class ReplyError(ClientError):
    """A delivered message cannot be replied to, because no client waits for a reply (RocketMQ's client code 10007)."""


class UndecodableBody(TianzhouError):
    """A message's body does not match its reader (`body=` of a handler, `tianzhou.client.decode_body`).

    Args:
        message: id of the message, and why its body cannot be decoded.
        reason: only why its body cannot be decoded.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        self.reason = reason
        super().__init__(message)


class DuplicateInProgress(TianzhouError):
    """A message with the same id is being processed elsewhere, and its result is not known yet."""

    retriable = True


class NotDurable(TianzhouError):
    """A message is stored, but no broker confirmed in time that it survives a failure (`Producer(durable=True)`).

    The message may still be delivered. Sending it again may store it twice.

    Args:
        message: position of the message, the missing confirmation, and the remedy.
        status: the last status, `FLUSH_DISK_TIMEOUT`, `SLAVE_NOT_AVAILABLE` or `FLUSH_SLAVE_TIMEOUT`.
        msg_id: unique key of the message.
    """

    retriable = True

    def __init__(self, message: str, *, status: str = "", msg_id: str = "") -> None:
        self.status = status
        self.msg_id = msg_id
        super().__init__(message)


class BatchPartlySent(TianzhouError):
    """A batch of `send_batch(…, split=True)` failed after earlier batches were sent; `__cause__` is its error.

    Args:
        message: number of the failed batch, and number of sent messages.
        results: results of the sent messages, in order. The first unsent message follows them.
    """

    retriable = True

    def __init__(self, message: str, *, results: Sequence[object] = ()) -> None:
        self.results = list(results)
        super().__init__(message)


class OutboxFull(TianzhouError):
    """No broker answers, and the producer's outbox is full; the message was not stored."""

    retriable = True


class OutboxUnavailable(TianzhouError):
    """No broker accepts a message, and the producer's outbox does not answer.

    The outbox may have stored the message.
    """

    retriable = True


class LimitExceeded(TianzhouError):
    """A request exceeds a limit (docs/reference/limits.md); no part of it was executed.

    Args:
        message: the limited object, the requested amount, the limit, and the key that raises it.
        limit: the limit, a `tianzhou.limits.Limit`.
    """

    response_code = 29

    def __init__(self, message: str, *, limit: object = None) -> None:
        self.limit = limit
        super().__init__(message)


class IllegalName(TianzhouError):
    """A name is too long, empty, or has characters that are invalid for its kind (`tianzhou.model.name_rules`)."""

    response_code = 29


class TooBusy(LimitExceeded):
    """A limit of waiting work is reached. The condition is temporary, and clients retry by themselves."""

    retriable = True
    response_code = 2


class StoreError(TianzhouError):
    """The store cannot execute the request; its content is undamaged."""

    response_code = 14


class CorruptRecord(StoreError):
    """Bytes in the store are not the expected record (store.md §3.5).

    Args:
        message: the expected and the found bytes.
        size: total size of the record if it has a plausible one, so that a reader can skip it; -1 when a reader cannot
            continue behind it.
        reason: `short` (too few bytes), `magic` (no record starts here), `length` (the parts do not add up to the
            total) or `crc` (the lengths are right, but the content is damaged).
    """

    def __init__(self, message: str, *, size: int = -1, reason: str = "magic") -> None:
        self.size = size
        self.reason = reason
        super().__init__(message)


class BodiesTooLarge(CorruptRecord):
    """The compressed bodies of several records decompress to more than one batch may contain. Request fewer records."""


class OffsetOutOfRange(StoreError):
    """The offset is outside the range of the store."""

    response_code = 21


class DiskFull(StoreError):
    """The disk is fuller than the limit, or the system refused space; reads still work."""

    retriable = True


class PageCacheBusy(StoreError):
    """The disk is so slow that the log has no writable memory ready."""

    response_code = 2


class StoreLocked(StoreError):
    """Another process uses the store directory (store.md §1)."""


class StoreUnreadable(StoreError):
    """The directory is no store that this version can open; the text has the file and the cause."""


class StateLost(StoreUnreadable):
    """A state file and its previous version are both damaged; the text has the files and the causes."""


class FilterSyntaxError(TianzhouError):
    """A filter expression is invalid.

    Args:
        message: the expected or the found part.
        position: index of the offending character in the expression, from 0.
    """

    response_code = 23

    def __init__(self, message: str, position: int = 0) -> None:
        self.position = position
        super().__init__(f"{message} at position {position}")
