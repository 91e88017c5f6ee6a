"""Every request code, the server of it and a test of it: the page docs/reference/codes.md.

Names and handlers come from the programs' own tables; this file has the reason why a code is not served, and the test
of each served one. Print the page by `PYTHONPATH=src python tests/form/code_table.py > docs/reference/codes.md`.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tianzhou.access.settings import AuthSettings
from tianzhou.broker.server import make_parts, make_tables
from tianzhou.broker.services import Services
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.client.cluster import broker_requests
from tianzhou.clock import SystemClock
from tianzhou.limits import Bounds
from tianzhou.namesrv.handlers import NamesrvHandlers
from tianzhou.namesrv.kv import KvConfig
from tianzhou.namesrv.routes import NamesrvRouteTable
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.gates.access_control import AccessControl, access_control, credentials_by_chance
from tianzhou.store.settings import StoreSettings
from tianzhou.store.store import MessageStore
from tianzhou.supervision import Supervisor
from tianzhou.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ("3.1", "3.2", "3.3", "3.4", "3.5")
_POP = "POP consumption is not served yet"
_WITH_ACCOUNTS = "with `aclEnable`; gone in 5.3.3, which answers 3"
_WITH_USERS = "with `authenticationEnabled`"
_CONTAINER = "broker container only; a 5.3.3 broker answers 3"
_ROCKSDB = "needs RocksDB, which this store does not use"

REASONS: dict[int, str] = {
    60: "the timer wheel is not served yet",
    61: "the timer wheel is not served yet",
    355: _ROCKSDB,
    400: _POP,
    401: _POP,
    513: "static topics are not served; answered as by a 4.9 broker",
    902: _CONTAINER,
    903: _CONTAINER,
    **dict.fromkeys((200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151), _POP),
}
"""Reasons why a code of wire.md §3.1 to §3.5 is not served."""

_COLD = "kept and shown only: reads of cold data are not held back yet, they wait beside the loop"

NOTES: dict[int, str] = {
    300: "names groups only, where 5.3.3 lists the topic itself as one",
    308: "groups left out keep their offsets, which 5.3.3 deletes",
    **dict.fromkeys((2001, 2002, 2003), _COLD),
    **dict.fromkeys(range(50, 55), _WITH_ACCOUNTS),
    **dict.fromkeys(range(3001, 3011), _WITH_USERS),
}
"""Notes about served codes."""

_ADMIN = "unit/broker/test_broker_admin.py::test_"
_CLIENTS = "unit/broker/tables/test_broker_clients.py::test_"
_NAMESRV = "unit/namesrv/test_name_server.py::test_"
_OFFSETS = "unit/broker/tables/test_broker_offsets.py::test_"
_STAGING = "unit/broker/staging/test_broker_staging.py::test_"
_TOOLS = "unit/broker/test_broker_tools.py::test_"

TESTS: dict[int, str] = {
    code: test
    for test, codes in {
        "unit/broker/test_broker_send.py::test_a_missing_field_is_named": (10,),
        "unit/broker/test_broker_pull.py::test_messages_come_as_they_are_stored": (11,),
        _OFFSETS + "single_messages": (12, 33),
        _OFFSETS + "committed_offsets": (14, 43),
        _OFFSETS + "commits_that_are_refused": (15,),
        _ADMIN + "topics_are_made_changed_shown_and_deleted": (17, 21, 215, 351),
        _ADMIN + "several_topics_are_one_change": (18,),
        _ADMIN + "every_key_is_shown_and_an_update_rewrites_the_whole_file": (25, 26),
        "unit/broker/test_broker_access_config.py::test_account_is_made_changed_and_deleted": (50, 51, 52, 53),
        "unit/broker/test_broker_access_config.py::test_accounts_are_shown_without_their_secrets": (54,),
        "scenario/test_users_and_policies.py::test_a_user_does_what_it_was_allowed_and_that_outlives_a_restart": (
            3001,
            3002,
            3003,
            3004,
            3005,
            3007,
            3008,
            3010,
        ),
        "scenario/test_access_matrix.py::test_who_is_let_in_is_what_the_rows_say_at_every_port_over_every_transport": (
            3006,
            3009,
        ),
        _ADMIN + "runtime_figures_are_those_tools_read": (28,),
        _OFFSETS + "bounds_and_times": (29, 30, 31, 32),
        _CLIENTS + "a_heartbeat_makes_group_and_retry_topic": (34,),
        _CLIENTS + "everyone_is_notified_on_join_and_on_leave": (35, 38, 40),
        "unit/broker/delays/test_broker_delays.py::test_levels_and_limits_of_a_message_sent_back": (36,),
        "unit/broker/transactions/test_transaction_decisions.py::test_decisions_that_are_refused": (37,),
        "unit/broker/transactions/test_transaction_checks.py::test_fifteen_checks_then_it_is_put_aside": (39,),
        _CLIENTS + "locks_are_free_at_once_when_their_owner_leaves": (41, 42),
        _OFFSETS + "delay_offsets": (45,),
        _CLIENTS + "client_config_is_checked": (46,),
        _NAMESRV + "the_kv_configuration_survives_a_restart": (100, 101, 102, 219),
        _NAMESRV + "the_three_forms_of_a_registration": (103,),
        _NAMESRV + "permissions_topics_and_lists": (104, 106, 205, 206, 216, 217, 224, 304, 327, 311, 312, 313, 901),
        _NAMESRV + "route_dialects_by_version_and_by_wish": (105,),
        _ADMIN + "groups_are_made_shown_and_deleted": (200, 201, 207, 225, 353),
        _ADMIN + "topic_figures_list_every_queue": (202,),
        _CLIENTS + "connections_as_tools_see_them": (203, 204, 328),
        _ADMIN + "how_far_a_group_is": (208, 317),
        _TOOLS + "members_are_notified_of_a_reset_when_that_is_configured": (220,),
        _TOOLS + "members_say_how_far_they_are": (221, 223),
        _OFFSETS + "reset_by_time_by_offset_and_to_the_end": (222,),
        _ADMIN + "who_reads_a_topic_and_what_a_group_reads": (300, 343, 345),
        _TOOLS + "how_far_behind_a_group_is_in_time": (303,),
        _ADMIN + "system_topics_cannot_be_deleted": (305,),
        "unit/broker/test_broker_flow.py::test_deletions_on_request": (306, 316, 329),
        _CLIENTS + "running_info_is_requested_of_the_client": (307,),
        _TOOLS + "what_a_group_should_be_set_to": (308,),
        _TOOLS + "a_member_consumes_a_message_at_once": (309,),
        "unit/broker/test_broker_send.py::test_a_message_is_stored_and_its_place_returned": (310,),
        _OFFSETS + "offsets_of_a_group_can_be_copied": (314,),
        "unit/broker/stats/test_broker_stats.py::test_figures_on_request": (315,),
        _NAMESRV + "the_configuration_is_shown_changed_and_rewritten_whole": (318, 319),
        "unit/broker/test_broker_send.py::test_a_batch_becomes_messages_with_consecutive_offsets": (320,),
        _TOOLS + "units_of_a_queue": (321,),
        _NAMESRV + "heartbeats_and_version_queries_keep_a_broker": (322, 904),
        "unit/broker/transactions/test_transaction_checks.py::test_what_was_put_aside_is_checked_again_on_request": (
            323,
        ),
        "unit/broker/test_broker_request_reply.py::test_a_reply_is_pushed_to_the_requester_and_stored": (324, 325, 326),
        _ADMIN + "asking_for_a_group_may_make_it": (352,),
        _TOOLS + "there_are_no_queues_in_rocksdb": (354,),
        "unit/broker/test_broker_pull.py::test_lite_pull_is_a_pull_that_can_be_forbidden": (361,),
        _TOOLS + "nothing_can_be_recalled": (370,),
        _TOOLS + "a_master_without_replicas": (905, 907, 1007, 1008),
        "scenario/test_master_and_slave.py::test_members_and_administrators_learn_who_follows_whom": (402, 906, 908),
        _TOOLS + "limits_of_cold_reads_are_stored_and_shown": (2001, 2002, 2003),
        _TOOLS + "reading_ahead_is_switched": (2004,),
        _STAGING + "a_decision_stands_whoever_asks_again": (31001,),
        _STAGING + "staged_messages_are_seen_when_their_batch_is_decided": (31002, 31003, 31004),
        _STAGING + "attempts_that_are_given_up_can_no_longer_be_decided": (31005, 31006),
        "scenario/groups/test_damage_in_a_group.py::test_broken_messages_are_fetched_from_the_other_broker": (31010,),
        "scenario/replication/test_users_of_slaves.py::test_users_of_a_master_are_at_its_slave_and_are_caught_up": (
            31020,
        ),
        "unit/broker/send_limits/test_limited_sends.py::test_limits_are_set_listed_and_deleted_by_request": (
            31030,
            31031,
        ),
    }.items()
    for code in codes
}
"""One test, `file::function` below `tests`, that sends the code and checks the reply."""


def listed_codes(sections: tuple[str, ...] = SECTIONS) -> list[int]:
    """Return the request codes in the tables of docs/spec/wire.md, in their order."""
    text = (ROOT / "docs" / "spec" / "wire.md").read_text(encoding="utf-8")
    found: dict[int, None] = {}
    for section in sections:
        part = re.split(rf"^### {re.escape(section)} .*$", text, flags=re.MULTILINE)[1]
        for line in re.split(r"^##", part, maxsplit=1, flags=re.MULTILINE)[0].splitlines():
            cell = line.partition("|")[2].partition("|")[0]
            if re.fullmatch(r"[\d /\u2013]+", cell):
                found.update(dict.fromkeys(_numbers(cell)))
    return list(found)


def own_codes() -> list[int]:
    """Return Tianzhou's own request codes, which RocketMQ does not have (docs/adr/0006)."""
    return sorted(int(code) for code in RequestCode if code in range(31_000, 32_000))


def _numbers(cell: str) -> Iterator[int]:
    for part in cell.split("/"):
        first, _, last = part.strip().partition("\u2013")
        yield from range(int(first), int(last or first) + 1)


def broker_handlers() -> dict[int, str]:
    """Return the handlers of a broker by code."""
    with tempfile.TemporaryDirectory() as folder:
        settings = replace(BrokerSettings(), broker_name="broker-a", broker_ip1="127.0.0.1", namesrv_addr="")
        store_settings = replace(StoreSettings(), store_path_root_dir=folder)
        clock = SystemClock()
        found = {}
        for access in access_controls(Path(folder)):
            services = Services(
                make_tables(settings, store_settings, 0),
                MessageStore(store_settings, clock),
                BrokerStats(0),
                clock,
                Supervisor("broker", clock),
                "127.0.0.1:10911",
                (b"\x7f\x00\x00\x01", 10911),
            )
            client = RemotingClient(clock=clock)
            router = make_parts(
                services,
                client=client,
                written=_nothing,
                settings_changed=lambda _: None,
                access=access,
                users=None if access is None else access.users,
            ).router
            found.update({code: _name(router.handler(code)) for code in router.codes})
        return found


def access_controls(folder: Path) -> Iterator[AccessControl | None]:
    """Yield access control of both kinds, and None: each serves requests of its own."""
    file = folder / "plain_acl.yml"
    file.write_text("accounts: [{accessKey: administrator, secretKey: a-long-secret, admin: true}]")
    file.chmod(0o600)
    for settings in (
        AuthSettings(acl_enable=True, acl_config_path=str(file)),
        AuthSettings(authentication_enabled=True),
        AuthSettings(),
    ):
        yield access_control(settings, folder, "DefaultCluster", Bounds(), SystemClock(), credentials_by_chance())


async def _nothing() -> None:
    """Write nothing."""


def namesrv_handlers() -> dict[int, str]:
    """Return the handlers of a name server by code."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for access in access_controls(Path(folder)):
            kv = KvConfig(Path(folder) / "kv.json")
            handlers = NamesrvHandlers(
                NamesrvSettings(), NamesrvRouteTable(), kv, SystemClock(), lambda _: None, access=access
            )
            found.update({code: _name(handlers.handler(code)) for code in handlers.codes})
        return found


def client_handlers() -> dict[int, str]:
    """Return the handlers of a client by code, from its one `match` statement."""
    source = inspect.getsource(broker_requests.answer)
    return {
        int(RequestCode[name]): "`client.cluster.broker_requests`"
        for name in re.findall(r"case RequestCode\.(\w+)", source)
    }


def _name(handler: Callable[..., Any]) -> str:
    module = handler.__module__.removeprefix("tianzhou.").replace("handlers.", "")
    return f"`{module}.{handler.__name__.lstrip('_')}`"


def page() -> str:
    """Return the text of docs/reference/codes.md."""
    tables = (("broker", broker_handlers()), ("name server", namesrv_handlers()), ("client", client_handlers()))
    lines = [
        "# Request codes",
        "",
        "Every request code a RocketMQ 4.9 or 5.3 broker, name server or client knows, who serves it here, and a test",
        "that asks for it. A code without a handler is answered as Apache's servers answer one they do not know: code",
        "3, `request type N not supported`. Codes from 31001 on are Tianzhou's own, docs/adr/0006. The page is",
        "printed by `PYTHONPATH=src python tests/form/code_table.py`.",
        "",
        "| code | name | served by | test |",
        "|---|---|---|---|",
    ]
    for code in [*listed_codes(), *own_codes()]:
        served = [f"{who}: {table[code]}" for who, table in tables if code in table]
        test = f"`{TESTS[code]}`" if code in TESTS else ""
        text = "; ".join(served) or REASONS.get(code, "")
        text += f" ({NOTES[code]})" if code in NOTES else ""
        lines.append(f"| {code} | {RequestCode(code).name} | {text} | {test} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
