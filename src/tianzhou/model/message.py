"""Messages: the one that a producer sends, and the one that a consumer receives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tianzhou.model import names


@dataclass(slots=True)
class Message:
    """A message to send.

    Args:
        topic: the topic to send to.
        body: the payload.
        tags: one tag, by which consumers can select messages; RocketMQ's name for it is plural.
        keys: business keys to find the message by later; one string (keys separated by spaces) or several.
        flag: an integer that RocketMQ passes to consumers unchanged.
        properties: user properties. The producer rejects reserved names (`tianzhou.model.names`).
        delay_level: 1 to 18 (1 s … 2 h); 0 delivers at once (wire.md §4.9).
        sharding_key: text that `send` with a key selector hashes to preserve an order; stored with the message.
        wait_store_ok: False lets the broker acknowledge without waiting for flush or replicas.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Iterable[str] = ""
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    delay_level: int = 0
    sharding_key: str | None = None
    wait_store_ok: bool = True

    def key_text(self) -> str:
        """Return the keys as one string, separated by spaces, as on the wire (wire.md §4.3)."""
        return self.keys if isinstance(self.keys, str) else " ".join(self.keys)

    @property
    def transaction_id(self) -> str | None:
        """Id of the transaction that this message opens; available to the local transaction that runs with it."""
        return self.properties.get(names.TRANSACTION_ID) or self.properties.get(names.UNIQ_KEY)


@dataclass(slots=True)
class MessageExt:
    """A message as delivered: the sent message, and where and when the broker stored it.

    `properties` holds all properties of the record, including system properties. `user_properties` omits system
    properties. Times are milliseconds since the epoch. Hosts are `ip:port`.
    """

    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]
    broker_name: str
    queue_id: int
    queue_offset: int
    commitlog_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    store_size: int
    offset_msg_id: str

    @property
    def msg_id(self) -> str:
        """The unique key from its producer; without one, its offset id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_msg_id

    @property
    def tags(self) -> str | None:
        """Its tag; None without one."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> str:
        """Its keys, separated by spaces; empty without keys."""
        return self.properties.get(names.KEYS, "")

    @property
    def delay_level(self) -> int:
        """The delay level of its send; 0 for none."""
        return int(self.properties.get(names.DELAY) or 0)

    @property
    def transaction_id(self) -> str | None:
        """Id of the transaction that it belongs to, which transaction checks name; None without a transaction."""
        if self.properties.get(names.TRAN_MSG) != "true":
            return self.properties.get(names.TRANSACTION_ID)
        return self.properties.get(names.TRANSACTION_ID) or self.properties.get(names.UNIQ_KEY)

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that its sender set."""
        return {k: v for k, v in self.properties.items() if k not in names.RESERVED}
