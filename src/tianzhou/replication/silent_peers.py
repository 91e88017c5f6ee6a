"""Log lines about members of a group that do not answer."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from math import inf
from typing import Final

from tianzhou.errors import ConnectionLost, TianzhouError

_ENDS_AT_ONCE_S: Final = 3.0
"""Seconds after a reply within which a lost connection means that the member has just ended or restarts."""

_log = logging.getLogger(__name__)


class SilentPeers:
    """A log of members that do not reply: a warning when TLS may be the cause, once until the member replies again.

    Args:
        group: name of the group.
        peers: addresses by id.
    """

    def __init__(self, group: str, peers: Mapping[str, str]) -> None:
        self._group = group
        self._peers = peers
        self._answered_s: dict[str, float] = {}
        self._silent: set[str] = set()

    def answered(self, peer: str, now_s: float) -> None:
        """Note a reply of a member.

        Args:
            peer: id of the member.
            now_s: monotonic time, seconds.
        """
        self._answered_s[peer] = now_s
        self._silent.discard(peer)

    def note(self, peer: str, error: TianzhouError, now_s: float) -> None:
        """Log why a member did not reply to a request.

        Args:
            peer: id of the member.
            error: the failure of the request.
            now_s: monotonic time, seconds.
        """
        text = f"group {self._group}: {peer} at {self._peers[peer]} does not answer: {error}"
        since_s = now_s - self._answered_s.get(peer, -inf)
        ends_at_once = isinstance(error, ConnectionLost) and since_s > _ENDS_AT_ONCE_S
        if peer in self._silent or not (ends_at_once or isinstance(error.__cause__, ssl.SSLError)):
            _log.debug("%s", text)
            return
        self._silent.add(peer)
        _log.warning("%s", text)
