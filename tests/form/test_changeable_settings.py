"""Every setting has a class: it may change while the server runs, or there is a reason why it may not."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import tianzhou
from tianzhou.broker import changeable_settings as of_broker
from tianzhou.broker.ignored_settings import IGNORED as IGNORED_OF_BROKER
from tianzhou.broker.settings import BrokerSettings
from tianzhou.namesrv import changeable_settings as of_name_server
from tianzhou.namesrv.settings import IGNORED as IGNORED_OF_NAME_SERVER
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.gates.admin_gate import DANGEROUS
from tianzhou.remoting.tls import TlsSettings
from tianzhou.setting_rules import problems
from tianzhou.settings import key_of, keys_of
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.codes import OF_BOTH, OF_NAME_SERVERS, RequestCode

SERVERS: list[tuple[Any, Any, tuple[type, ...]]] = [
    (of_broker, IGNORED_OF_BROKER, (BrokerSettings, StoreSettings)),
    (of_name_server, IGNORED_OF_NAME_SERVER, (NamesrvSettings,)),
]
of_each_server = pytest.mark.parametrize(("module", "idle", "classes"), SERVERS, ids=["broker", "name server"])


def listed(table: dict[str, tuple[str, ...]]) -> list[str]:
    return [key for keys in table.values() for key in keys]


@of_each_server
def test_every_key_is_classed_once(module: Any, idle: Any, classes: tuple[type, ...]) -> None:
    fixed, without_effect = listed(module.FIXED), set(listed(idle))
    keys = keys_of(*classes)
    assert sorted(set(fixed)) == sorted(fixed)
    assert keys - module.AT_ONCE - set(fixed) - without_effect == set(), "say whether it may be changed"
    assert module.AT_ONCE & set(fixed) == set()
    assert module.AT_ONCE & without_effect == set()
    assert (module.AT_ONCE | set(fixed)) <= keys
    assert module.RULES.changeable == keys - set(fixed)


@of_each_server
def test_paths_ports_names_and_secrets_are_never_changed(module: Any, idle: Any, classes: tuple[type, ...]) -> None:
    dangerous = re.compile(
        r"path|home|port$|host|address$|ip[12]$|^(broker|cluster)name|role$|black|white|plugin|tls|^acl|auth|credential"
        r"|secret|password|token|header|proxy|certificate|domain|clustertest|envname|target|peers|controlleraddr|directory|file(name|mode)?$|remoteadmin",
        re.IGNORECASE,
    )
    # The last three are two numbers and a switch: none names an address or a file.
    harmless = {
        "fetchNamesrvAddrByAddressServer", "maxConnectionsPerAddress", "flushLeastPagesWhenWarmMapedFile",
        "syncFromLastFile",
    }  # fmt: skip
    assert {key for key in module.RULES.changeable if dangerous.search(key)} <= harmless
    assert keys_of(TlsSettings).isdisjoint(module.RULES.changeable)


@of_each_server
def test_every_number_that_does_something_has_a_range(module: Any, idle: Any, classes: tuple[type, ...]) -> None:
    without_effect, ranges = set(listed(idle)), module.RULES.ranges
    for one in classes:
        hints = get_type_hints(one)
        for field in dataclasses.fields(one):
            key = key_of(field)
            if hints[field.name] in (int, float) and key not in without_effect:
                assert key in ranges, f"{key}: say from where to where it may be"
    assert set(ranges) <= keys_of(*classes)


@of_each_server
def test_the_defaults_may_be(module: Any, idle: Any, classes: tuple[type, ...]) -> None:
    assert list(problems(module.RULES, *(one() for one in classes))) == []


def test_secrets_are_found_by_kind() -> None:
    kinds = re.compile(r"password|secret|credential|token|header$|socksproxy", re.IGNORECASE)
    for one in (BrokerSettings, StoreSettings, NamesrvSettings, TlsSettings):
        for field in dataclasses.fields(one):
            if kinds.search(key_of(field)):
                assert field.metadata.get("secret"), f"{key_of(field)}: mark it as a secret"
                assert not field.repr


# Request codes open to every peer that reaches the port.
OPEN = """
    SEND_MESSAGE PULL_MESSAGE CONSUMER_SEND_MSG_BACK END_TRANSACTION CHECK_TRANSACTION_STATE SEND_MESSAGE_V2
    SEND_BATCH_MESSAGE SEND_REPLY_MESSAGE SEND_REPLY_MESSAGE_V2 PUSH_REPLY_MESSAGE_TO_CLIENT LITE_PULL_MESSAGE
    RECALL_MESSAGE QUERY_ASSIGNMENT SET_MESSAGE_REQUEST_MODE GET_ALL_MESSAGE_REQUEST_MODE POP_MESSAGE ACK_MESSAGE
    PEEK_MESSAGE CHANGE_MESSAGE_INVISIBLETIME NOTIFICATION POLLING_INFO POP_ROLLBACK BATCH_ACK_MESSAGE QUERY_MESSAGE
    QUERY_CONSUMER_OFFSET UPDATE_CONSUMER_OFFSET SEARCH_OFFSET_BY_TIMESTAMP GET_MAX_OFFSET GET_MIN_OFFSET
    GET_EARLIEST_MSG_STORETIME VIEW_MESSAGE_BY_ID HEART_BEAT UNREGISTER_CLIENT GET_CONSUMER_LIST_BY_GROUP
    NOTIFY_CONSUMER_IDS_CHANGED LOCK_BATCH_MQ UNLOCK_BATCH_MQ CHECK_CLIENT_CONFIG RESET_CONSUMER_CLIENT_OFFSET
    GET_CONSUMER_STATUS_FROM_CLIENT GET_CONSUMER_RUNNING_INFO CONSUME_MESSAGE_DIRECTLY UPDATE_AND_CREATE_TOPIC
    UPDATE_AND_CREATE_TOPIC_LIST GET_ALL_TOPIC_CONFIG UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG GET_TOPIC_STATS_INFO GET_CONSUMER_CONNECTION_LIST GET_PRODUCER_CONNECTION_LIST
    GET_CONSUME_STATS INVOKE_BROKER_TO_RESET_OFFSET INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST QUERY_TOPIC_CONSUME_BY_WHO QUERY_CONSUME_TIME_SPAN
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER QUERY_CORRECTION_OFFSET CLONE_GROUP_OFFSET VIEW_BROKER_STATS_DATA
    GET_BROKER_CONSUME_STATS QUERY_CONSUME_QUEUE RESUME_CHECK_HALF_MESSAGE GET_ALL_PRODUCER_INFO
    QUERY_TOPICS_BY_CONSUMER QUERY_SUBSCRIPTION_BY_CONSUMER GET_TOPIC_CONFIG GET_SUBSCRIPTIONGROUP_CONFIG
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS UPDATE_AND_CREATE_STATIC_TOPIC GET_BROKER_CONFIG GET_BROKER_RUNTIME_INFO
    GET_ALL_CONSUMER_OFFSET GET_ALL_DELAY_OFFSET GET_BROKER_CLUSTER_ACL_INFO GET_BROKER_CLUSTER_ACL_CONFIG
    GET_TIMER_CHECK_POINT GET_TIMER_METRICS
    GET_BROKER_MEMBER_GROUP BROKER_HEARTBEAT NOTIFY_MIN_BROKER_ID_CHANGE EXCHANGE_BROKER_HA_INFO
    GET_BROKER_HA_STATUS GET_BROKER_EPOCH_CACHE GET_COLD_DATA_FLOW_CTR_INFO AUTH_GET_USER AUTH_LIST_USER
    AUTH_GET_ACL AUTH_LIST_ACL GET_KV_CONFIG REGISTER_BROKER UNREGISTER_BROKER GET_ROUTEINFO_BY_TOPIC
    GET_BROKER_CLUSTER_INFO GET_ALL_TOPIC_LIST_FROM_NAMESERVER REGISTER_TOPIC_IN_NAMESRV GET_KVLIST_BY_NAMESPACE
    GET_TOPICS_BY_CLUSTER GET_SYSTEM_TOPIC_LIST_FROM_NS GET_UNIT_TOPIC_LIST GET_HAS_UNIT_SUB_TOPIC_LIST
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST GET_NAMESRV_CONFIG QUERY_DATA_VERSION CONTROLLER_REGISTER_BROKER
    CONTROLLER_GET_REPLICA_INFO CONTROLLER_GET_METADATA_INFO CONTROLLER_GET_SYNC_STATE_DATA GET_CONTROLLER_CONFIG
    CONTROLLER_GET_NEXT_BROKER_ID CONTROLLER_APPLY_BROKER_ID QUERY_BROKER_OFFSET GET_TOPIC_CONFIG_LIST
    GET_TOPIC_NAME_LIST GET_CLIENT_CONFIG SUSPEND_CONSUMER RESUME_CONSUMER RESET_CONSUMER_OFFSET_IN_CONSUMER
    RESET_CONSUMER_OFFSET_IN_BROKER ADJUST_CONSUMER_THREAD_POOL WHO_CONSUME_THE_MESSAGE REGISTER_FILTER_SERVER
    STAGING_STATE STAGE_MESSAGES DECIDE_BATCH PUBLISH_BATCH SETTLE_ATTEMPTS DISCARD_ATTEMPTS
    READ_LOG READ_USERS READ_SEND_LIMITS
"""


def test_every_request_code_is_dangerous_or_open() -> None:
    every = set(RequestCode)
    opened = {RequestCode[name] for name in OPEN.split()}
    assert every - DANGEROUS.keys() - opened == set(), "say whether it can lose messages or stop the service"
    assert DANGEROUS.keys() & opened == set()
    assert (DANGEROUS.keys() | opened) == every


def test_name_servers_serve_what_is_listed_as_theirs() -> None:
    from tianzhou.namesrv.handlers import NamesrvHandlers

    served = NamesrvHandlers._routes.__code__.co_names
    assert {code.name for code in RequestCode if code.name in served} == {
        RequestCode(code).name for code in OF_NAME_SERVERS | OF_BOTH
    }


def test_no_repr_shows_a_password() -> None:
    kinds = re.compile(r"password|passwd|secret|credential|security_token", re.IGNORECASE)
    shown = []
    for path in sorted((Path(tianzhou.__file__).parent).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not kinds.search(text):
            continue  # a syntax tree is slow to parse
        for made in ast.walk(ast.parse(text)):
            if not isinstance(made, ast.ClassDef) or not any(
                "dataclass" in ast.unparse(d) for d in made.decorator_list
            ):
                continue
            for line in made.body:
                if isinstance(line, ast.AnnAssign) and kinds.search(ast.unparse(line.target)):
                    value = "" if line.value is None else ast.unparse(line.value)
                    if not re.search(r"repr=False|secret=True|secret\(", value):
                        shown.append(f"{path.name}: {made.name}.{ast.unparse(line.target)}")
    assert shown == []
