"""Requests that can lose messages or stop the service: taken from this machine only, unless a key lets others in.

Who may do what is decided by credentials once there are any; until then a peer that reaches the port must not be able
to delete what others wait for. Creating topics and groups, sending, consuming and looking are open to all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, Final

from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.locality import is_loopback, is_on_this_machine
from tianzhou.wire.codes import RequestCode as Code
from tianzhou.wire.codes import ResponseCode, request_name
from tianzhou.wire.command import Command

KEY: Final = "enableRemoteAdmin"
"""The setting that lets other machines in."""

DANGEROUS: Final[Mapping[int, str]] = {
    Code.UPDATE_BROKER_CONFIG: "changes settings",
    Code.UPDATE_NAMESRV_CONFIG: "changes settings",
    Code.UPDATE_CONTROLLER_CONFIG: "changes settings",
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: "changes settings",
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: "changes settings",
    Code.SET_COMMITLOG_READ_MODE: "changes settings",
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
"""Guarded request codes, and what each does."""

OPEN: Final[frozenset[int]] = frozenset(
    {
        Code.SEND_MESSAGE, Code.PULL_MESSAGE, Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION,
        Code.CHECK_TRANSACTION_STATE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2, Code.PUSH_REPLY_MESSAGE_TO_CLIENT, Code.LITE_PULL_MESSAGE, Code.RECALL_MESSAGE,
        Code.QUERY_ASSIGNMENT, Code.SET_MESSAGE_REQUEST_MODE, Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.POP_MESSAGE,
        Code.ACK_MESSAGE, Code.PEEK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME, Code.NOTIFICATION, Code.POLLING_INFO,
        Code.POP_ROLLBACK, Code.BATCH_ACK_MESSAGE, Code.QUERY_MESSAGE, Code.QUERY_CONSUMER_OFFSET,
        Code.UPDATE_CONSUMER_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET,
        Code.GET_EARLIEST_MSG_STORETIME, Code.VIEW_MESSAGE_BY_ID, Code.HEART_BEAT, Code.UNREGISTER_CLIENT,
        Code.GET_CONSUMER_LIST_BY_GROUP, Code.NOTIFY_CONSUMER_IDS_CHANGED, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ,
        Code.CHECK_CLIENT_CONFIG, Code.RESET_CONSUMER_CLIENT_OFFSET, Code.GET_CONSUMER_STATUS_FROM_CLIENT,
        Code.GET_CONSUMER_RUNNING_INFO, Code.CONSUME_MESSAGE_DIRECTLY, Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.GET_ALL_TOPIC_CONFIG, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_TOPIC_STATS_INFO, Code.GET_CONSUMER_CONNECTION_LIST,
        Code.GET_PRODUCER_CONNECTION_LIST, Code.GET_CONSUME_STATS, Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.QUERY_CONSUME_TIME_SPAN, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.QUERY_CORRECTION_OFFSET, Code.CLONE_GROUP_OFFSET, Code.VIEW_BROKER_STATS_DATA,
        Code.GET_BROKER_CONSUME_STATS, Code.QUERY_CONSUME_QUEUE, Code.RESUME_CHECK_HALF_MESSAGE,
        Code.GET_ALL_PRODUCER_INFO, Code.QUERY_TOPICS_BY_CONSUMER, Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
        Code.GET_TOPIC_CONFIG, Code.GET_SUBSCRIPTIONGROUP_CONFIG, Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC, Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_BROKER_CLUSTER_ACL_INFO,
        Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS, Code.GET_BROKER_MEMBER_GROUP, Code.BROKER_HEARTBEAT,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.EXCHANGE_BROKER_HA_INFO, Code.GET_BROKER_HA_STATUS,
        Code.GET_BROKER_EPOCH_CACHE, Code.GET_COLD_DATA_FLOW_CTR_INFO, Code.AUTH_GET_USER, Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL, Code.GET_KV_CONFIG, Code.REGISTER_BROKER, Code.UNREGISTER_BROKER,
        Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.REGISTER_TOPIC_IN_NAMESRV, Code.GET_KVLIST_BY_NAMESPACE, Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, Code.GET_NAMESRV_CONFIG, Code.QUERY_DATA_VERSION,
        Code.CONTROLLER_REGISTER_BROKER, Code.CONTROLLER_GET_REPLICA_INFO, Code.CONTROLLER_GET_METADATA_INFO,
        Code.CONTROLLER_GET_SYNC_STATE_DATA, Code.GET_CONTROLLER_CONFIG, Code.CONTROLLER_GET_NEXT_BROKER_ID,
        Code.CONTROLLER_APPLY_BROKER_ID, Code.QUERY_BROKER_OFFSET, Code.GET_TOPIC_CONFIG_LIST,
        Code.GET_TOPIC_NAME_LIST, Code.GET_CLIENT_CONFIG, Code.SUSPEND_CONSUMER, Code.RESUME_CONSUMER,
        Code.RESET_CONSUMER_OFFSET_IN_CONSUMER, Code.RESET_CONSUMER_OFFSET_IN_BROKER,
        Code.ADJUST_CONSUMER_THREAD_POOL, Code.WHO_CONSUME_THE_MESSAGE, Code.REGISTER_FILTER_SERVER,
        Code.STAGING_STATE, Code.STAGE_MESSAGES, Code.DECIDE_BATCH, Code.PUBLISH_BATCH, Code.SETTLE_ATTEMPTS,
        Code.DISCARD_ATTEMPTS,
    }
)  # fmt: skip
"""Request codes open to every peer that reaches the port: every code is here or in `DANGEROUS`."""


def exposure_warning(server: str, host: str, opened: bool) -> str:
    """Warning for operators about a server that other machines can reach; empty for one that they cannot.

    Args:
        server: "broker" or "name server".
        host: the address it listens on.
        opened: whether the key lets other machines in.
    """
    if is_loopback(host):
        return ""
    where = f"{server} listens on {host or '0.0.0.0'} without checking who asks"
    if opened:
        return f"{where}: whoever reaches it may send, read, change settings and delete ({KEY}=true)"
    return f"{where}: whoever reaches it may send and read; settings and deletions need this machine, or {KEY}=true"


class AdminGate:
    """Guards the handlers of dangerous requests; the others are not touched.

    Args:
        server: "broker" or "name server", for messages.
        opened: whether the key lets other machines in.
    """

    def __init__(self, server: str, opened: Callable[[], bool]) -> None:
        self._server = server
        self._opened = opened

    def guarded(self, table: Mapping[int, Callable[[Connection, Command], Any]]) -> dict[int, Any]:
        """The handler table with the dangerous requests guarded."""
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
