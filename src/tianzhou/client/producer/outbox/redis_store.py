"""An outbox in Redis: a stream for each producer (docs/adr/0032)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from tianzhou.client.producer.outbox import redis_scripts
from tianzhou.client.producer.outbox.outbox_store import MAX_FRAMES, OVERHEAD_BYTES, Frame, Payload, bytes_of
from tianzhou.errors import ClientError, ConfigError, OutboxFull, OutboxUnavailable, TianzhouError
from tianzhou.supervision import start_owned

_log = logging.getLogger(__name__)

SCHEMES: Final = ("redis://", "rediss://", "unix://")
LEASE_S: Final = 10.0
ANSWER_WITHIN_S: Final = 3.0
_PAGE: Final = 500
_PAYLOAD: Final = b"payload"


class RedisOutbox:
    """An outbox in Redis, for producers on machines without a disk of their own.

    A message is in the stream before `send` returns. It is as safe as Redis: Redis needs `appendonly yes`,
    `appendfsync always` if a power failure must lose nothing, and `maxmemory-policy noeviction` or `volatile-*`.

    One producer holds the stream at a time, and renews a lease. After `kill -9` the next producer waits until the lease
    has expired.

    Args:
        client: URL, as in `redis://localhost:6379/0`, or a client of `redis.asyncio`.
        name: name of the producer, unique among all producers of this Redis; by default the producer group, which then
            may have only one process.
        prefix: beginning of the names of all keys.
        lease_s: seconds without a renewal after which a producer loses the stream.

    Raises:
        ConfigError: a URL was given, and the redis package is not installed or cannot read it.
    """

    def __init__(
        self,
        client: str | Any,
        name: str | None = None,
        *,
        prefix: str = "tianzhou:outbox:",
        lease_s: float = LEASE_S,
    ) -> None:
        try:
            self._redis: Any = import_module("redis")
            import_module("redis.asyncio")
        except ImportError as error:
            raise ConfigError(
                "an outbox in Redis needs the redis package, which is not installed: pip install tianzhou[redis]"
            ) from error
        if lease_s <= 0:
            raise ConfigError(f"RedisOutbox lease_s={lease_s}: the lease lasts more than 0 seconds")
        self._url: str | None = None
        self._given: Any = None
        if isinstance(client, str):
            self._url, self._address = client, address_without_password(client)
            self._made()  # a wrong URL raises here, and not at the first start
        else:
            self._given, self._address = client, "redis"
            if client.connection_pool.connection_kwargs.get("decode_responses"):
                raise ConfigError(
                    "RedisOutbox: the client has decode_responses=True, and messages are bytes; leave it out"
                )
        self._name, self._prefix = name, prefix
        self._lease_ms = max(int(lease_s * 1000), 1)
        self._stream = ""
        self._client: Any = None
        self._holder = ""
        self._renewing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._count = self._bytes = self._lost = 0

    @property
    def place(self) -> str:
        """See `OutboxStore.place`."""
        return f"{self._address} {self._stream or self._prefix + (self._name or '')}"

    @property
    def count(self) -> int:
        """See `OutboxStore.count`."""
        return self._count

    @property
    def bytes(self) -> int:
        """See `OutboxStore.bytes`."""
        return self._bytes

    @property
    def lost(self) -> int:
        """See `OutboxStore.lost`."""
        return self._lost

    # --- start and stop --------------------------------------------------------------------------------------

    async def open(self, producer: str) -> None:
        """See `OutboxStore.open`. Wait until the lease of a producer that was killed has expired.

        Raises:
            ConfigError: Redis does not answer, rejects the account or would evict the stream; another producer holds
                the stream; or its messages belong to another producer group.
        """
        # Braces put all keys on one node of a Redis Cluster.
        self._stream = f"{self._prefix}{{{self._name or producer}}}"
        self._client = self._made() if self._url is not None else self._given
        self._holder = json.dumps(
            {"group": producer, "host": socket.gethostname(), "pid": os.getpid(), "id": secrets.token_hex(8)}
        )
        self._count = self._bytes = self._lost = 0
        try:
            await self._check_server()
            self._count = await self._take(producer)
            self._bytes = await self._measured()
        except BaseException as error:
            with suppress(Exception):
                await self._call(redis_scripts.RELEASE)
            await self._disconnect()
            if isinstance(error, (self._redis.RedisError, OSError, OutboxUnavailable, OutboxFull)):
                raise ConfigError(
                    f"outbox {self.place} cannot be used: {_text(error)}; start Redis, or correct the address"
                ) from error
            raise
        self._closing = asyncio.Event()  # a new one, because it belongs to the event loop that waits for it
        self._renewing = start_owned(self._renew(), f"outbox {self.place}")

    async def close(self) -> None:
        """See `OutboxStore.close`."""
        if self._client is None:
            return
        if self._renewing is not None:
            # A cancelled renewal may still reach Redis after the release, and acquire the lease again.
            self._closing.set()
            await asyncio.wait([self._renewing], timeout=ANSWER_WITHIN_S)
            self._renewing.cancel()
            self._renewing = None
        with suppress(self._redis.RedisError, OSError):  # otherwise the lease expires
            await self._call(redis_scripts.RELEASE)
        await self._disconnect()

    async def _check_server(self) -> None:
        await self._client.ping()
        try:
            info = await self._client.info()
        except self._redis.ResponseError:
            return  # this account may not read it
        policy = str(info.get("maxmemory_policy", "noeviction"))
        if policy.startswith("allkeys-") and info.get("maxmemory"):
            raise ConfigError(
                f"outbox {self.place}: this Redis evicts any key when its memory is full (maxmemory-policy {policy}), "
                "so messages would be lost; set maxmemory-policy noeviction, or volatile-lru"
            )
        if not info.get("aof_enabled"):
            _log.warning(
                "outbox %s: this Redis does not log its writes, so messages are lost when it restarts; set "
                "appendonly yes",
                self.place,
            )

    async def _take(self, producer: str) -> int:
        """Acquire the stream, and return its length."""
        while True:
            code, *values = await self._call(redis_scripts.OPEN, producer)
            if code == 1:
                return int(values[0])
            if code == 2:
                raise ConfigError(
                    f"outbox {self.place} has {values[1]} messages of producer group {_decoded(values[0])}, and this "
                    f"producer's group is {producer}; give each producer its own name: RedisOutbox(…, name=…)"
                )
            holder = _decoded(values[0])
            if await self._is_renewed():
                raise ConfigError(
                    f"outbox {self.place} is in use by another producer ({holder_text(holder)}); give each producer "
                    "its own name: RedisOutbox(…, name=…)"
                )

    async def _is_renewed(self) -> bool:
        """Wait for a part of the holder's lease. Return whether the holder has renewed it in this time."""
        lease = f"{self._stream}:holder"
        before_ms = await self._client.pttl(lease)
        if before_ms == -1:
            return True  # a key that does not expire is not a lease of this class
        wait_ms = min(max(before_ms, 1), self._lease_ms / 2)
        await asyncio.sleep(wait_ms / 1000)
        left_ms = await self._client.pttl(lease)
        return bool(left_ms > 0 and left_ms > before_ms - wait_ms / 2)

    async def _measured(self) -> int:
        """Return the bytes of all payloads in the stream."""
        size, after = 0, "-"
        while entries := await self._client.xrange(self._stream, min=after, count=_PAGE):
            size += bytes_of([_payload(fields) for _, fields in entries])
            after = "(" + _decoded(entries[-1][0])
        return size

    async def _renew(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease_ms / 3000):
                    await self._closing.wait()
            if self._closing.is_set():
                return
            try:
                reply = await self._call(redis_scripts.RENEW)
            except (self._redis.RedisError, OSError) as error:
                _log.debug("outbox %s: the lease is not renewed: %s", self.place, error)
                continue
            if reply[0] == 0:
                _log.error("%s", self._taken(reply))
                return

    # --- messages --------------------------------------------------------------------------------------------

    async def append(self, payloads: Sequence[Payload]) -> None:
        """See `OutboxStore.append`."""
        size = bytes_of(payloads)
        try:
            reply = await self._held(redis_scripts.APPEND, *payloads)
        except OutboxFull as error:
            raise OutboxFull(
                f"outbox {self.place} cannot take {size} bytes, and no broker answers: {error}; raise maxmemory, or "
                "send later"
            ) from error.__cause__
        except OutboxUnavailable as error:
            raise OutboxUnavailable(
                f"{error}. No broker answers, and a message of this send may be in the outbox or not; send it again"
            ) from error.__cause__
        self._bytes += size
        self._settle(reply[1], self._count + len(payloads))

    async def peek(self, max_bytes: int) -> list[Frame]:
        """See `OutboxStore.peek`."""
        _, length, found = await self._held(redis_scripts.PEEK, max(max_bytes, 1), MAX_FRAMES, OVERHEAD_BYTES)
        self._settle(length, self._count)
        return [Frame(bytes(found[at + 1]), _number(_decoded(found[at]))) for at in range(0, len(found), 2)]

    async def remove(self, frames: Sequence[Frame]) -> None:
        """See `OutboxStore.remove`."""
        if not frames:
            return
        reply = await self._held(redis_scripts.REMOVE, _id(max(frame.number for frame in frames) + 1))
        self._bytes = max(self._bytes - bytes_of([frame.payload for frame in frames]), 0)
        self._settle(reply[1], self._count - len(frames))

    async def set_aside(self, record: Payload) -> None:
        """See `OutboxStore.set_aside`; the stream with the name of this one and `:refused` has the records."""
        try:
            await self._client.xadd(f"{self._stream}:refused", {"message": record})
        except (self._redis.RedisError, OSError) as error:
            raise self._failure(error) from error

    def _settle(self, length: int, expected: int) -> None:
        """Set the count to the length from Redis, and report missing payloads."""
        if length < expected:
            self._lost += expected - length
            _log.error(
                "outbox %s: %d messages are lost: Redis no longer has them. It has restarted without appendonly, or "
                "another program has deleted them. Send again what the topics lack",
                self.place,
                expected - length,
            )
        self._count = length
        if not length:
            self._bytes = 0

    # --- calls -----------------------------------------------------------------------------------------------

    def _made(self) -> Any:
        asynchronous = import_module("redis.asyncio")
        retries = import_module("redis.asyncio.retry")
        backoff = import_module("redis.backoff")
        limits = {} if self._url is None or "timeout" in self._url else {
            "socket_timeout": ANSWER_WITHIN_S, "socket_connect_timeout": ANSWER_WITHIN_S,
        }  # fmt: skip
        try:
            # A connection that Redis has closed is opened again, once. A payload may then be stored twice, and is sent
            # twice with the same unique key.
            return asynchronous.Redis.from_url(self._url, retry=retries.Retry(backoff.NoBackoff(), 1), **limits)
        except ValueError as error:
            raise ConfigError(f"outbox {self._address} is no address of a Redis: {error}") from error

    async def _call(self, script: str, *arguments: object) -> list[Any]:
        keys = (self._stream, f"{self._stream}:holder", f"{self._stream}:group")
        reply = await self._client.eval(script, len(keys), *keys, self._holder, self._lease_ms, *arguments)
        return list(reply)

    async def _held(self, script: str, *arguments: object) -> list[Any]:
        if self._client is None:
            raise ClientError(f"outbox {self.place} is not open; start the producer first")
        try:
            reply = await self._call(script, *arguments)
        except (self._redis.RedisError, OSError) as error:
            raise self._failure(error) from error
        if reply[0] == 0:
            raise self._taken(reply)
        return reply

    def _taken(self, reply: list[Any]) -> OutboxUnavailable:
        return OutboxUnavailable(
            f"outbox {self.place} is held by another producer ({holder_text(_decoded(reply[1]))}), because this one "
            f"did not renew its lease for {self._lease_ms} ms; stop this producer, and give each producer its own name"
        )

    def _failure(self, error: Exception) -> TianzhouError:
        text = _text(error)
        if isinstance(error, self._redis.ResponseError) and ("OOM" in text or "maxmemory" in text):
            return OutboxFull(f"Redis has no memory left (maxmemory): {text}")
        return OutboxUnavailable(f"outbox {self.place} does not answer ({text}); start Redis, or see to the network")

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._url is not None:
            with suppress(Exception):
                await client.aclose()


def address_without_password(url: str) -> str:
    """Return a URL of a Redis without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def holder_text(holder: str) -> str:
    """Return group, process and host of the producer that holds a stream, for logs and errors."""
    try:
        found = json.loads(holder)
        return f"group {found['group']}, process {found['pid']} of {found['host']}"
    except (ValueError, KeyError, TypeError):
        return holder


def _number(entry_id: str) -> int:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds) << 64 | int(sequence)


def _id(number: int) -> str:
    return f"{number >> 64}-{number & (1 << 64) - 1}"


def _payload(fields: Any) -> bytes:
    value = fields.get(_PAYLOAD, fields.get(_PAYLOAD.decode(), b""))
    return value if isinstance(value, bytes) else bytes(str(value), "utf-8")


def _decoded(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
