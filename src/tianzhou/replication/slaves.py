"""A master's view of its slaves: the bytes to send next, and when a message counts as copied (broker.md §17)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tianzhou.errors import ProtocolError
from tianzhou.replication.rate import SecondRate
from tianzhou.store.results import PutStatus
from tianzhou.store.settings import StoreSettings

FIRST_REPORT_S: Final = 5.0
"""Seconds that a new connection may take to send its first report."""


_FAR_BEHIND: Final = 128 << 10
_LARGE_STRETCH: Final = 256 << 10
"""A slave that is more than `_FAR_BEHIND` bytes behind gets `_LARGE_STRETCH` bytes at once. Each stretch costs both
sides some calls, whatever its size, and RocketMQ's slaves have a buffer of 4 MiB for one."""
MOST_AHEAD: Final = 1 << 40
"""Bytes by which a slave's log may be longer than its master's; a peer that reports more is no slave."""


_REPORT_SIZE: Final = 8
_FRAME_KINDS: Final = frozenset({0, 1})
"""Header encodings of a request, JSON or RocketMQ's binary one: the byte before the header's length (wire.md §1)."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of the master's log.

    Attributes:
        begin: log offset where the oldest segment begins; -1 without one.
        end: next log offset.
        segment_size: bytes of a segment.
    """

    begin: int
    end: int
    segment_size: int


@dataclass(frozen=True, slots=True)
class SlaveSend:
    """The bytes to send a slave next.

    Attributes:
        offset: log offset of the first byte.
        size: number of bytes; 0 for a heartbeat.
    """

    offset: int
    size: int


def speaks_as_slave(hello: bytes, log: LogBounds) -> bool:
    """Whether the first bytes of a connection can be a slave's (broker.md §17.1).

    A slave sends one report, and repeats only that report until the master replies. A client's first bytes are the
    lengths of a frame and of its header: as a report, a request of 240 bytes would mean a log of a terabyte.

    Args:
        hello: received bytes, at least one report.
        log: bounds of the master's log.
    """
    report = hello[:_REPORT_SIZE]
    offset = int.from_bytes(report, signed=True)
    if not 0 <= offset <= log.end + MOST_AHEAD:
        return False
    if hello != (report * (len(hello) // _REPORT_SIZE + 1))[: len(hello)]:
        return False
    frame, header = offset >> 32, offset & 0xFFFFFF
    is_frame = (offset >> 24) & 0xFF in _FRAME_KINDS and 0 < header <= frame - 4
    return not is_frame or offset <= log.end


class Slave:
    """The progress of one slave.

    Args:
        address: the slave's address.
        settings: of the store.
        now_s: monotonic time, seconds.

    Attributes:
        acked: log offset up to which the slave reports to have the log; -1 before its first report.
        sent: log offset up to which the log was sent; -1 before its first report.
        address: the argument.
    """

    def __init__(self, address: str, settings: StoreSettings, now_s: float) -> None:
        self.address = address
        self.acked = -1
        self.sent = -1
        self._settings = settings
        self._heard_s = self._spoke_s = now_s
        self._rate = SecondRate(now_s)

    def answer(self, offset: int, log: LogBounds) -> int | None:
        """Return the heartbeat offset for a first report outside this master's log; None for any other report.

        The offset is where this log begins or ends. RocketMQ's slaves disconnect after a heartbeat at another offset
        than theirs. Our slaves search for the offset up to which the logs agree.

        Args:
            offset: reported end of the slave's log.
            log: bounds of the master's log.
        """
        if self.sent >= 0 or offset < 0:
            return None
        if offset > log.end:
            return log.end if offset <= log.end + MOST_AHEAD else None
        return log.begin if 0 < offset < log.begin else None

    def reported(self, offset: int, log: LogBounds, now_s: float) -> None:
        """Record a report.

        Args:
            offset: reported end of the slave's log.
            log: bounds of the master's log.
            now_s: monotonic time, seconds.

        Raises:
            ProtocolError: the report cannot be true; the caller disconnects the slave.
        """
        if not 0 <= offset <= log.end:
            raise ProtocolError(
                f"slave {self.address} reports {offset}, this master's log ends at {log.end}: its log is another "
                "one's, or has messages that this master lost; see the slave's log before you empty its store folder, "
                "because it may have the only copies"
            )
        self._heard_s = now_s
        if self.sent < 0:
            self.sent = self._first(offset, log)
            self._spoke_s = now_s - self._settings.ha_send_heartbeat_interval / 1000
        if offset > self.sent:
            raise ProtocolError(f"slave {self.address} reports {offset}, it was sent the log up to {self.sent}")
        self.acked = max(self.acked, offset)

    def _first(self, offset: int, log: LogBounds) -> int:
        """Return the log offset from which to send (broker.md §17.1)."""
        if offset == 0:
            if self._settings.sync_from_last_file:
                return max(log.end - log.end % log.segment_size, 0)
            return max(log.begin, 0)
        if offset < log.begin:
            raise ProtocolError(
                f"slave {self.address} reports {offset}, this master's log begins at {log.begin}: what is between is "
                "gone; empty the slave's store folder"
            )
        return offset

    def next(self, log: LogBounds, now_s: float) -> SlaveSend | float:
        """Return the next bytes to send, or the monotonic time in seconds until which there are none."""
        settings = self._settings
        heartbeat_s = self._spoke_s + settings.ha_send_heartbeat_interval / 1000
        if self.sent < 0:
            return now_s + FIRST_REPORT_S
        behind = log.end - self.sent
        size = min(behind, settings.ha_transfer_batch_size)
        if behind > _FAR_BEHIND:
            size = max(size, min(behind, _LARGE_STRETCH))
        # A stretch never crosses the end of a segment, because RocketMQ's slaves append it to one file.
        size = min(size, log.segment_size - self.sent % log.segment_size)
        if size > 0 and settings.ha_flow_control_enable:
            self._rate.turn(now_s)
            size = min(size, settings.max_ha_transfer_byte_in_second - self._rate.in_second)
            if size <= 0:
                return min(self._rate.began_s + 1, max(heartbeat_s, now_s))
        if size > 0:
            return SlaveSend(self.sent, size)
        return SlaveSend(self.sent, 0) if now_s >= heartbeat_s else heartbeat_s

    def was_sent(self, send: SlaveSend, now_s: float) -> None:
        """Record bytes that were given to the connection."""
        self._spoke_s = now_s
        self._rate.add(send.size, now_s)
        self.sent += send.size

    def rate(self, now_s: float) -> int:
        """Return the bytes sent in the last whole second.

        Args:
            now_s: monotonic time, seconds.
        """
        return self._rate.last(now_s)

    @property
    def patience_s(self) -> float:
        """Seconds that the slave may be silent."""
        silence_s = self._settings.ha_housekeeping_interval / 1000
        return silence_s if self.acked >= 0 else min(silence_s, FIRST_REPORT_S)

    def is_silent(self, now_s: float) -> bool:
        """Whether the slave has been silent for so long that it counts as disconnected."""
        return now_s - self._heard_s > self.patience_s


@dataclass(slots=True)
class Slaves:
    """All connected slaves, and the number of them that a message needs (broker.md §17.2).

    A SYNC_MASTER with `inSyncReplicas=1`, the default, has the rule of RocketMQ 4.9: it waits for one slave. RocketMQ
    5.x would acknowledge at once; use ASYNC_MASTER for that. A larger number counts the master, as in 5.x.

    Attributes:
        settings: of the store.
        connected: the slaves.
    """

    settings: StoreSettings
    connected: list[Slave] = field(default_factory=list)

    def needed(self, end: int) -> int:
        """Return how many slaves must have a message before it is acknowledged.

        Args:
            end: log offset where the log ends.
        """
        settings = self.settings
        if settings.broker_role != "SYNC_MASTER":
            return 0
        needed = max(settings.in_sync_replicas - 1, 1)
        if settings.enable_auto_in_sync_replicas:
            needed = max(min(needed, self.in_sync(end)), settings.min_in_sync_replicas - 1, 0)
        return needed

    def copied(self, end: int) -> int:
        """Return the log offset up to which enough slaves have the log; -1 when too few are connected."""
        needed = self.needed(end)
        if not needed:
            return end
        acked = sorted((slave.acked for slave in self.connected), reverse=True)
        return acked[needed - 1] if needed <= len(acked) else -1

    def in_sync(self, end: int) -> int:
        """Return how many slaves are near the end of the log."""
        most = self.settings.ha_max_gap_not_in_sync
        return sum(slave.acked >= 0 and end - slave.acked < most for slave in self.connected)

    def refusal(self, end: int) -> str | None:
        """Return why the master refuses puts; see `tianzhou.store.durability.Copies`."""
        replicas, least = 1 + self.in_sync(end), self.settings.min_in_sync_replicas
        if replicas >= least:
            return None
        return (
            f"{replicas} of this broker's group are in sync, the master among them, minInSyncReplicas={least} are "
            "wanted; start its slaves, and see `tianzhou status` when they run"
        )

    def verdict(self, end: int, record_end: int) -> PutStatus | None:
        """Return the status of a put; see `tianzhou.store.durability.Copies`."""
        needed = self.needed(end)
        if not needed or self.copied(end) >= record_end:
            return PutStatus.PUT_OK
        return None if self.in_sync(end) >= needed else PutStatus.SLAVE_NOT_AVAILABLE
