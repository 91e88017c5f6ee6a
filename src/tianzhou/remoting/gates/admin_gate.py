"""Gate for requests that can lose messages or stop the service: by default only this machine may send them.

Credentials decide once there are any. Until then, a peer that reaches the port must not be able to delete data that
others need. Creating topics and groups, sending, consuming and viewing are open to all peers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, Final

from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.gates.locality import is_loopback, is_on_this_machine
from tianzhou.wire.codes import RequestCode as Code
from tianzhou.wire.codes import ResponseCode, request_name
from tianzhou.wire.command import Command

KEY: Final = "enableRemoteAdmin"
"""The setting that admits other machines."""

DANGEROUS: Final[Mapping[int, str]] = {
    Code.UPDATE_BROKER_CONFIG: "changes settings",
    Code.UPDATE_NAMESRV_CONFIG: "changes settings",
    Code.UPDATE_CONTROLLER_CONFIG: "changes settings",
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: "changes settings",
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: "changes settings",
    Code.SET_COMMITLOG_READ_MODE: "changes settings",
    Code.UPDATE_SEND_LIMITS: "changes how much others may send",
    Code.PUT_KV_CONFIG: "changes the order of topics for all",
    Code.DELETE_KV_CONFIG: "changes the order of topics for all",
    Code.DELETE_TOPIC_IN_BROKER: "deletes messages",
    Code.DELETE_TOPIC_IN_NAMESRV: "takes a topic from all clients",
    Code.DELETE_SUBSCRIPTIONGROUP: "deletes the progress of a group",
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: "keeps a group from its messages",
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: "deletes files",
    Code.CLEAN_UNUSED_TOPIC: "deletes files",
    Code.DELETE_EXPIRED_COMMITLOG: "deletes messages",
    Code.TRIGGER_DELETE_FILES: "deletes messages",
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: "writes files",
    Code.WIPE_WRITE_PERM_OF_BROKER: "keeps all from sending",
    Code.ADD_WRITE_PERM_OF_BROKER: "has all send to a broker that was taken out",
    Code.UPDATE_AND_CREATE_ACL_CONFIG: "changes who may do what",
    Code.DELETE_ACL_CONFIG: "changes who may do what",
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: "changes who may do what",
    Code.AUTH_CREATE_USER: "changes who may do what",
    Code.AUTH_UPDATE_USER: "changes who may do what",
    Code.AUTH_DELETE_USER: "changes who may do what",
    Code.AUTH_CREATE_ACL: "changes who may do what",
    Code.AUTH_UPDATE_ACL: "changes who may do what",
    Code.AUTH_DELETE_ACL: "changes who may do what",
    Code.ADD_BROKER: "starts or stops a broker",
    Code.REMOVE_BROKER: "starts or stops a broker",
    Code.RESET_MASTER_FLUSH_OFFSET: "changes what is replicated",
    Code.NOTIFY_BROKER_ROLE_CHANGED: "changes what is replicated",
    Code.CONTROLLER_ALTER_SYNC_STATE_SET: "changes what is replicated",
    Code.CONTROLLER_ELECT_MASTER: "changes what is replicated",
    Code.CLEAN_BROKER_DATA: "changes what is replicated",
    Code.REGISTER_MESSAGE_FILTER_CLASS: "runs code of the peer",
}
"""Guarded request codes with their effects; tests/form/test_changeable_settings.py lists the open codes."""


_OPEN: Final = {
    "broker": "send, read any topic, by offset too, create topics, reset offsets",
    "name server": "see all routes, register as a broker, and take the name of one that is gone",
}
_FIX: Final = "to know who asks, set aclEnable or authenticationEnabled (docs/howto/access-control.md)"


def exposure_warning(server: str, host: str, opened: bool, *, checked: bool = False) -> str:
    """Return a warning about a server that other machines can reach; empty when they cannot.

    Args:
        server: "broker" or "name server".
        host: the address it listens on.
        opened: whether the key admits other machines.
        checked: whether access control is on.
    """
    if checked or is_loopback(host):
        return ""
    where, open_to_all = f"{server} listens on {host or '0.0.0.0'} without checking who asks", _OPEN[server]
    if opened:
        return f"{where}: whoever reaches it may {open_to_all}, change settings and delete ({KEY}=true); {_FIX}"
    here = f"settings and deletions need this machine, or {KEY}=true"
    return f"{where}: whoever reaches it may {open_to_all}; {here}; {_FIX}"


class AdminGate:
    """Guard of the handlers of dangerous requests; other handlers stay unchanged.

    Args:
        server: "broker" or "name server", for messages.
        opened: whether the key admits other machines.
    """

    def __init__(self, server: str, opened: Callable[[], bool]) -> None:
        self._server = server
        self._opened = opened

    def guarded(self, table: Mapping[int, Callable[[Connection, Command], Any]]) -> dict[int, Any]:
        """Return the handler table with the dangerous requests guarded."""
        return {int(code): self._guard(code, handle) if code in DANGEROUS else handle for code, handle in table.items()}

    def _guard(
        self, code: int, handle: Callable[[Connection, Command], Any]
    ) -> Callable[[Connection, Command], Command | Awaitable[Command]]:
        @wraps(handle)
        def serve(connection: Connection, command: Command) -> Any:
            if not self._opened() and not is_on_this_machine(connection):
                raise BrokerError(ResponseCode.NO_PERMISSION, self._refusal(code, connection))
            return handle(connection, command)

        return serve

    def _refusal(self, code: int, connection: Connection) -> str:
        server, peer = self._server, connection.remote_address
        return (
            f"{request_name(code)} ({int(code)}) {DANGEROUS[code]}, and {peer} is another machine; ask from the "
            f"{server}'s own machine, or set {KEY}=true in the {server}'s configuration file"
        )
