"""The one error tree.

Every error a caller can see derives from `TianzhouError` and says three things about itself as class
attributes, so that code branches on a property and never on a list of classes: whether trying again can help
(`retriable`), whether the topic's route should be queried again first (`refresh_route`), and which response
code it becomes when it crosses the wire (`response_code`, wire.md §2).

Expected outcomes (flush timeouts, "no new message") are statuses in `tianzhou.model`, not errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar


class TianzhouError(Exception):
    """Base of every error Tianzhou raises on purpose."""

    retriable: ClassVar[bool] = False
    refresh_route: ClassVar[bool] = False
    response_code: ClassVar[int] = 1


class ConfigError(TianzhouError):
    """Settings, flags or files are invalid. The text names each of them, its value and the accepted values.

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
    """Collects the faults of a configuration.

    Args:
        prefix: text before each fault, such as the name of the source.

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
        """Add the faults of a `ConfigError` that the block raises; the block ends there.

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
    """A setting may not be changed while the server runs, or by nobody; the text says how it can be set."""

    response_code = 16


class RemotingError(TianzhouError):
    """A failure between two processes, below the level of any request."""

    retriable = True


class ConnectFailed(RemotingError):
    """No connection could be made to the address within the connect timeout."""

    refresh_route = True


class ConnectionLost(RemotingError):
    """The connection ended while a reply was awaited; whether the request was carried out is unknown."""

    refresh_route = True


class RequestTimeout(RemotingError):
    """No reply came in time; whether the request was carried out is unknown."""


class ReplyTimeout(RequestTimeout):
    """A request was stored, but no reply to it came in time (RocketMQ's client code 10006)."""


class TooManyRequests(RemotingError):
    """More requests are in flight on this client than its limit allows (wire.md §1.8)."""


class ProtocolError(RemotingError):
    """Bytes that no peer speaking this protocol sends; the connection they came on is closed (wire.md §1.1)."""

    retriable = False


class BodyTooLarge(ProtocolError):
    """A compressed body unpacks to more than is accepted."""


class HeaderFieldError(ProtocolError):
    """A header field is missing or cannot be read; the request is answered, the connection stays (wire.md §1.4)."""


class BrokerError(TianzhouError):
    """A server answered a request with a code that means failure.

    Args:
        code: the response code (wire.md §2).
        remark: the server's text.
        hint: what the caller can do about it; appended to the message when given.
        address: the server's `host:port`, when known.
    """

    def __init__(self, code: int, remark: str = "", *, hint: str = "", address: str = "") -> None:
        self.code = code
        self.remark = remark
        self.hint = hint
        self.address = address
        where = f" from {address}" if address else ""
        super().__init__(f"code {code}{where}: {remark}" + (f" ({hint})" if hint else ""))


class ClientError(TianzhouError):
    """The client was used in a way it cannot serve; nothing was sent."""

    response_code = 13


class CallbackExit(ClientError):
    """A callback of the user raised an exception that would end the program or a task; `__cause__` is that exception.

    `SystemExit`, `KeyboardInterrupt`, `GeneratorExit` and `asyncio.CancelledError` are such exceptions. The callback
    counts as failed, as after any other exception.
    """


class UnknownTopic(ClientError):
    """No name server knows the topic."""

    response_code = 17


class AlreadyExists(ClientError):
    """A topic or group that is to be created exists already; nothing was changed."""

    response_code = 1


class OffsetOutsideQueue(ClientError):
    """A group cannot continue at an offset, because a queue does not hold it."""

    response_code = 1


class TopicUnavailable(ClientError):
    """The topic has no queue that can be sent to now: it does not exist, or its brokers are gone."""


class NoWritableQueue(TopicUnavailable):
    """The topic exists, and none of its queues can be written now: its brokers have no master, or are read-only."""

    retriable = True


class RateLimited(ClientError):
    """A producer got no token of its own limit (`send_rate`, `send_rate_bytes`) before the time of the send was over.

    A send that a broker's limit refuses raises a `BrokerError` of code 2 (SYSTEM_BUSY).
    """

    retriable = True
    response_code = 2


class ReplyError(ClientError):
    """A delivered message cannot be replied to: nobody waits for a reply (RocketMQ's client code 10007)."""


class UndecodableBody(TianzhouError):
    """A message's body is not what its reader expects (`body=` of a handler, `tianzhou.client.decode_body`).

    Args:
        message: which message it is, and why its body cannot be decoded.
        reason: why alone.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        self.reason = reason
        super().__init__(message)


class DuplicateInProgress(TianzhouError):
    """A message with the same id is being processed elsewhere; whether it was done is known later."""

    retriable = True


class NotDurable(TianzhouError):
    """A message is stored, but no broker confirmed in time that it survives a failure (`Producer(durable=True)`).

    It may be delivered all the same; sending it again may store it twice.

    Args:
        message: where it is, what is missing and what to change.
        status: the last status, `FLUSH_DISK_TIMEOUT`, `SLAVE_NOT_AVAILABLE` or `FLUSH_SLAVE_TIMEOUT`.
        msg_id: its unique key.
    """

    retriable = True

    def __init__(self, message: str, *, status: str = "", msg_id: str = "") -> None:
        self.status = status
        self.msg_id = msg_id
        super().__init__(message)


class BatchPartlySent(TianzhouError):
    """A batch of `send_batch(…, split=True)` failed after others were sent; `__cause__` is its error.

    Args:
        message: number of the failed batch, and number of messages that are sent.
        results: results of the messages that are sent, in order. The first of the other messages follows them.
    """

    retriable = True

    def __init__(self, message: str, *, results: Sequence[object] = ()) -> None:
        self.results = list(results)
        super().__init__(message)


class OutboxFull(TianzhouError):
    """No broker answers, and the producer's outbox holds as much as it may; the message was not stored."""

    retriable = True


class OutboxUnavailable(TianzhouError):
    """No broker accepts a message, and the producer's outbox does not answer. The outbox may have stored it."""

    retriable = True


class LimitExceeded(TianzhouError):
    """More was requested than a limit allows (docs/reference/limits.md); nothing of it was done.

    Args:
        message: what is limited, how much was requested, how much is allowed and which key raises it.
        limit: the limit, a `tianzhou.limits.Limit`.
    """

    response_code = 29

    def __init__(self, message: str, *, limit: object = None) -> None:
        self.limit = limit
        super().__init__(message)


class IllegalName(TianzhouError):
    """A name has characters or a length that its kind may not have (`tianzhou.model.name_rules`); nothing was done."""

    response_code = 29


class TooBusy(LimitExceeded):
    """A limit on what waits is reached; that passes, and clients try again by themselves."""

    retriable = True
    response_code = 2


class StoreError(TianzhouError):
    """The store cannot do what was requested; what it holds is unharmed."""

    response_code = 14


class CorruptRecord(StoreError):
    """Bytes in the store do not form the record they should (store.md §3.5).

    Args:
        message: what was expected and found.
        size: the record's total size when it says one that could be true, so that a reader can step over it;
            -1 when nothing behind this point can be found by it.
        reason: `short` (too few bytes), `magic` (no record starts here), `length` (the parts do not add up to
            the total) or `crc` (the parts add up, the content is damaged).
    """

    def __init__(self, message: str, *, size: int = -1, reason: str = "magic") -> None:
        self.size = size
        self.reason = reason
        super().__init__(message)


class BodiesTooLarge(CorruptRecord):
    """The compressed bodies of several records unpack to more than one batch may hold; fewer records fit."""


class OffsetOutOfRange(StoreError):
    """The offset lies outside what the store holds."""

    response_code = 21


class DiskFull(StoreError):
    """The disk is fuller than the limit, or the system refused space; reads go on."""

    retriable = True


class PageCacheBusy(StoreError):
    """The disk is so slow that the log has no memory ready to be written to."""

    response_code = 2


class StoreLocked(StoreError):
    """Another process holds the store directory (store.md §1)."""


class StoreUnreadable(StoreError):
    """The directory holds something that is no store this version can open; the text says which file and why."""


class StateLost(StoreUnreadable):
    """A state file and the version before it are both damaged; the text says which files and why."""


class FilterSyntaxError(TianzhouError):
    """A filter expression cannot be parsed.

    Args:
        message: what was expected or found.
        position: index of the offending character in the expression, from 0.
    """

    response_code = 23

    def __init__(self, message: str, position: int = 0) -> None:
        self.position = position
        super().__init__(f"{message} at position {position}")
