"""Features of foreign clients with our servers, and of our client with Apache's: prints `docs/reference/strangers.md`.

A cell is proved by a test with that client; pytest lists the existing tests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "strangers.md"

CLIENTS = {
    "java-4.9.7": "Java 4.9.7",
    "java-5.3.3": "Java 5.3.3",
    "go-2.1.2": "Go 2.1.2",
    "cpp-0.4.4": "C++ 0.4.4",
    "node-3.12.0": "Node 3.12.0",
}
APACHES = {"4.9.7": "ours at Apache's 4.9.7", "5.3.3": "ours at Apache's 5.3.3"}
J4, J5, GO, CPP, NODE = CLIENTS
JAVA = (J4, J5)
NO_API = "not offered"
WHEEL = "not offered by its Python wheel, in which form it is to be had"
UNUSED = "an option that the client never looks at"


class Feature(NamedTuple):
    """One row.

    Attributes:
        name: Name of the feature.
        tests: Tests in `tests/interop`, with their clients; a sequence of clients belongs to tests without a parameter
            of that name.
        missing: Reason for missing clients.
        ours: Checks of the contract suites that run against both of Apache's brokers.
    """

    name: str
    tests: Mapping[str, Sequence[str] | None]
    missing: Mapping[str, str]
    ours: Sequence[str] = ()


STRANGERS, WAYS, PLACES = "test_strangers.py::", "test_stranger_ways.py::", "test_stranger_places.py::"
RETRIES, FILTERS, PULLS = "test_stranger_retries.py::", "test_stranger_filters.py::", "test_stranger_pulls.py::"
TRANSACTIONS, RESETS = "test_stranger_transactions.py::", "test_stranger_resets.py::"
ACCESS = "test_stranger_access.py::"
BESIDE, MIXED, SHARES = "test_apache_beside_ours.py::", "test_mixed_groups.py::", "test_shares.py::"
CLIENT, CONSUMER, PRODUCING, SQL = "client_suite.py::", "consumer_suite.py::", "producing_suite.py::", "sql_suite.py::"
NEITHER = {CPP: WHEEL, NODE: NO_API}

FEATURES = (
    Feature("send and wait for the answer", {STRANGERS + "test_every_send_is_acknowledged": None}, {},
        [CLIENT + "everything_sent_is_read_back_as_it_was"]),
    Feature("send with a callback",
        {STRANGERS + "test_every_send_is_acknowledged": (*JAVA, GO),
         WAYS + "test_cpp_pulls_all_and_sends_with_callbacks": (CPP,)},
        {NODE: "every send is a promise"}, [CLIENT + "everything_sent_is_read_back_as_it_was"]),
    Feature("send one way", {STRANGERS + "test_every_send_is_acknowledged": (*JAVA, GO, CPP)}, {NODE: NO_API},
        [CLIENT + "one_way_messages_arrive"]),
    Feature("batches",
        {STRANGERS + "test_every_send_is_acknowledged": (*JAVA, GO), STRANGERS + "test_unique_keys_of_batches": JAVA},
        {CPP: "sends them without the mark of a batch, so that every broker stores one message", NODE: NO_API},
        [CLIENT + "a_batch_is_stored_in_one_piece"]),
    Feature("large bodies compressed", {STRANGERS + "test_large_bodies_were_compressed": None}, {},
        [CLIENT + "large_bodies_travel_compressed"]),
    Feature("topics made by the first send", {STRANGERS + "test_topics_are_created_by_the_first_send": None},
        {NODE: "asks the name server for the topic first, and gives up"},
        [CLIENT + "an_unknown_topic_is_made_by_sending"]),
    Feature("delay levels", {WAYS + "test_delayed_messages_come_late": None}, {},
        [CLIENT + "a_delayed_message_comes_late"]),
    Feature("transactions: decided at once and on a check",
        {TRANSACTIONS + "test_decisions_at_once_and_on_a_check": None}, NEITHER,
        [PRODUCING + "a_transaction_decides_whether_its_message_is_delivered",
         PRODUCING + "a_broker_asks_about_unknown_transactions"]),
    Feature("transactions: another member is checked",
        {TRANSACTIONS + "test_another_member_is_checked_when_one_is_killed": None}, NEITHER,
        [PRODUCING + "another_member_answers_for_one_that_is_gone"]),
    Feature("clustering: two members share the queues",
        {STRANGERS + "test_members_of_a_group_share_the_queues": None,
         MIXED + "test_members_of_five_kinds_share_one_group": (CPP,)}, {},
        [CLIENT + "members_share_the_messages_and_keep_their_progress"]),
    Feature("one group with members of all kinds",
        {MIXED + "test_members_of_five_kinds_share_one_group": (J5, GO, CPP, NODE),
         BESIDE + "test_java_and_ours_share_the_queues_of_both": None}, {}),
    Feature("shared averagely", {SHARES + "test_members_of_both_kinds_decide_alike": JAVA,
        SHARES + "test_go_decides_as_we_do": (GO,),
        MIXED + "test_members_of_five_kinds_share_one_group": (CPP, NODE)}, {},
        [CONSUMER + "members_share_by_the_chosen_strategy"]),
    Feature("shared in a circle, as configured", {SHARES + "test_members_of_both_kinds_decide_alike": JAVA,
        SHARES + "test_go_decides_as_we_do": (GO,)}, NEITHER, [CONSUMER + "members_share_by_the_chosen_strategy"]),
    Feature("shared by machine room", {SHARES + "test_members_of_both_kinds_decide_alike": JAVA,
        SHARES + "test_go_decides_as_we_do": (GO,)}, NEITHER),
    Feature("shared by the nearby room, by consistent hash",
        {SHARES + "test_members_of_both_kinds_decide_alike": JAVA},
        {GO: "decides otherwise than Java does (`test_two_of_gos_strategies_are_its_own`)", **NEITHER}),
    Feature("broadcasting", {WAYS + "test_broadcasting_reaches_every_member": None,
        STRANGERS + "test_broadcasting_reads_all_everywhere": None}, {}, [CLIENT + "broadcast_reaches_every_member"]),
    Feature("tags", {PLACES + "test_only_wanted_tags_come": None}, {}, [CLIENT + "only_wanted_tags_are_delivered"]),
    Feature("SQL92", {FILTERS + "test_push_consumers_get_what_they_select": None,
        FILTERS + "test_pull_consumers_get_what_they_select": None, PLACES + "test_node_selects_with_sql": (NODE,)},
        {CPP: WHEEL}, [SQL + "sql_selects_by_properties", SQL + "pulls_bring_their_expression"]),
    Feature("several messages for the handler at once", {WAYS + "test_batches_for_the_handler": None}, NEITHER,
        [CLIENT + "batches_reach_a_handler_as_lists", CONSUMER + "of_a_batch_only_what_failed_comes_again"]),
    Feature("refused messages come again", {STRANGERS + "test_refused_messages_come_again": JAVA,
        FILTERS + "test_refused_messages_come_again": (GO,), PLACES + "test_a_namespace_keeps_names_apart": (NODE,),
        WAYS + "test_a_refused_message_is_dead_at_last": (CPP, NODE)}, {}, [CLIENT + "what_fails_is_delivered_again"]),
    Feature("sixteen steps, then a dead letter",
        {RETRIES + "test_refused_messages_end_as_at_apaches_broker": (*JAVA, GO),
         WAYS + "test_a_refused_message_is_dead_at_last": None}, {},
        [CLIENT + "a_message_nobody_can_consume_ends_as_a_dead_letter"]),
    Feature("order: messages of a key in one queue",
        {WAYS + "test_messages_in_order": None}, {NODE: "sends what belongs into queue 0 anywhere"},
        [CLIENT + "a_queue_can_be_chosen"]),
    Feature("order: orderly consumers", {WAYS + "test_messages_in_order": None,
        MIXED + "test_orderly_members_of_both_kinds_never_overlap": (J5,)}, {NODE: NO_API},
        [CONSUMER + "orderly_queues_are_consumed_one_message_after_the_other",
         CONSUMER + "nothing_is_overtaken_when_orderly_members_come_and_go"]),
    Feature("pull", {STRANGERS + "test_pull_finds_contiguous_queues": JAVA,
        PULLS + "test_a_queue_is_pulled_from_an_offset": (GO,),
        PULLS + "test_a_group_that_pulls_goes_on_where_it_was": (GO,),
        WAYS + "test_cpp_pulls_all_and_sends_with_callbacks": (CPP,)}, {NODE: NO_API},
        [CLIENT + "a_pull_says_what_it_found"]),
    Feature("pull that waits for a message",
        {WAYS + "test_a_pull_waits_for_a_message": None, PULLS + "test_a_pull_waits_for_a_message": (GO,)},
        NEITHER, [CLIENT + "a_pull_at_the_end_waits_for_the_next_message"]),
    Feature("lite pull: poll, commit, seek", {WAYS + "test_lite_pull_assigns_seeks_commits_and_shares": None,
        PULLS + "test_what_is_polled_and_sent_back_comes_again": (GO,)}, NEITHER,
        [CLIENT + "polling_keeps_a_position_per_queue", CONSUMER + "polling_members_share_the_queues"]),
    Feature("groups that begin at a time", {PLACES + "test_a_new_group_begins_at_a_time": None}, {CPP: WHEEL},
        [CLIENT + "a_group_begins_where_it_wants"]),
    Feature("offsets reset by the broker while online",
        {RESETS + "test_members_begin_again_where_the_broker_resets": tuple(CLIENTS),
         RESETS + "test_members_begin_again_when_mqadmin_resets": tuple(CLIENTS)}, {}),
    Feature("offsets reset by members who are notified",
        {WAYS + "test_offsets_are_reset_while_the_group_is_online": (*JAVA, GO, CPP)},
        {NODE: "does not know the request"}, [CLIENT + "offsets_are_reset_with_and_without_members"]),
    Feature("messages found by id and key", {STRANGERS + "test_messages_are_viewable_by_both_ids": JAVA,
        STRANGERS + "test_messages_are_found_by_key": JAVA}, {GO: NO_API, **NEITHER},
        [CLIENT + "messages_are_found_by_id_key_and_position"]),
    Feature("requests: asking", {"test_replies.py::test_java_asks_and_we_answer": None,
        WAYS + "test_go_asks_and_java_answers": (GO,)}, NEITHER, [PRODUCING + "a_request_gets_its_reply"]),
    Feature("requests: answering", {"test_replies.py::test_we_ask_and_java_answers": None,
        WAYS + "test_java_asks_and_go_answers": (GO,)}, NEITHER, [PRODUCING + "a_request_gets_its_reply"]),
    Feature("message trace", {WAYS + "test_messages_are_traced": None}, NEITHER,
        [PRODUCING + "a_message_is_traced_from_producer_to_consumer"]),
    Feature("namespaces", {PLACES + "test_a_namespace_keeps_names_apart": None}, {CPP: WHEEL},
        [PRODUCING + "consumers_inside_a_namespace_see_their_own_names"]),
    Feature("the fast port (VIP channel)", {PLACES + "test_clients_use_the_fast_port": None},
        {GO: UNUSED, **NEITHER}),
    Feature("access control: the right account may do everything",
        {ACCESS + f"test_{one}": None for one in (
            "what_is_sent_with_the_right_account_is_stored", "what_is_refused_comes_again_and_dies",
            "orderly_members_lock_their_queues", "pulls_find_everything_and_commit",
            "transactions_end_at_once_and_on_a_check", "an_account_that_its_address_lets_in_ends_transactions",
            "requests_are_answered", "traces_are_stored")}, {}),
    Feature("access control: others are refused, in the client's words",
        {ACCESS + "test_who_may_not_send_is_told_in_the_clients_way": None,
         ACCESS + "test_who_may_not_consume_gets_nothing": None}, {}),
    Feature("TLS", {STRANGERS + "test_every_send_is_acknowledged": JAVA}, {GO: NO_API, **NEITHER}),
    Feature("one of two masters dies and comes back",
        {"test_two_masters.py::test_one_of_two_masters_dies_and_comes_back": (J5, GO)},
        dict.fromkeys((J4, CPP, NODE), "the others stand for it")),
    Feature("our broker and Apache's in one cluster at our name server",
        {BESIDE + "test_everyone_sends_to_both_and_reads_from_both": tuple(CLIENTS),
         BESIDE + "test_transactions_end_on_either": None}, {}),
)  # fmt: skip

HEAD = """\
# Foreign clients

What Apache's and others' clients do with Tianzhou's servers, and what Tianzhou's client does with Apache's brokers. A
number is how many tests prove it; where there is none, the reason is below. All clients speak the 4.x protocol.

- Java: `rocketmq-client` 4.9.7 and 5.3.3. Go: `rocketmq-client-go` 2.1.2. C++: `librocketmq` in the wheel `rocketmq`
  0.4.4. Node: `ali-ons` 3.12.0, which is written in JavaScript alone. (`apache-rocketmq` loads a binary of the C++
  library that no registry has; `rocketmq-client-nodejs` speaks gRPC.)
- Ours: checks of `tests/contract` that run against our own servers and against both versions of Apache's.

The page is printed by `.venv/bin/python tests/form/strangers_table.py`.
"""


@cache
def collected() -> tuple[str, ...]:
    """Return every test in `tests/interop`, without the path before the file."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "",
        "-p",
        "no:cacheprovider",
        "tests/interop",
    ]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    return tuple(line[line.index("test_") :] for line in printed.splitlines() if "::" in line)


def versions_of(test: str) -> list[str]:
    """Return a test's variants with their parameters."""
    return [one for one in collected() if one == test or one.startswith(f"{test}[")]


def takes_part(client: str, one: str) -> bool:
    """Whether a test's parameters name a client; with TLS or binary headers it counts as another client."""
    return re.search(rf"(?<![\w.]){re.escape(client)}(?!-(?:binary|tls))(?![\w.])", one) is not None


def proofs(feature: Feature, client: str) -> Iterator[str]:
    """Yield the tests that prove a feature with a client."""
    for test, clients in feature.tests.items():
        found = versions_of(test)
        if any(takes_part(other, one) for other in CLIENTS for one in found):
            if clients is None or client in clients:
                yield from (one for one in found if takes_part(client, one))
        elif clients is not None:
            yield from found if client in clients and not by_version(found) else ()
            if client in clients and by_version(found):
                yield from (one for one in found if takes_part(client.removeprefix("java-"), one))
        elif client in JAVA:
            yield from (one for one in found if takes_part(client.removeprefix("java-"), one))


def by_version(found: Sequence[str]) -> bool:
    """Whether a test has Java's version as its last parameter, and not the broker's as its first."""
    return all(re.search(r"-[45]\.\d\.\d\]$", one) is not None for one in found)


def fails_in_4_9() -> set[str]:
    """Return checks that need more than 4.9.7 supports."""
    text = (ROOT / "tests" / "interop" / "apache_servers" / "test_client_vs_apache.py").read_text(encoding="utf-8")
    table = re.search(r"MISSING_IN_4_9 = \{(.*?)^\}", text, re.DOTALL | re.MULTILINE)
    assert table is not None
    return set(re.findall(r'^    "(\w+)":', table[1], re.MULTILINE))


def ours(feature: Feature, version: str) -> Iterator[str]:
    """Yield the checks of our client that prove a feature with a version of Apache's broker."""
    for check in feature.ours:
        name = check.partition("::")[2]
        if version != "4.9.7" or name not in fails_in_4_9():
            yield from (one for one in collected() if one.endswith(f"_with_apache[{version}-{name}]"))


def totals() -> dict[str, int]:
    """Return the number of tests of each client, by the tests' parameters; and our client's with each broker."""
    found = {title: sum(takes_part(client, one) for one in collected()) for client, title in CLIENTS.items()}
    for version, title in APACHES.items():
        checks = [one for one in collected() if f"_with_apache[{version}-" in one]
        found[title] = len(
            [one for one in checks if version != "4.9.7" or one[:-1].rpartition("-")[2] not in fails_in_4_9()]
        )
    return found


def page() -> str:
    """Return the whole page."""
    reasons: list[str] = []

    def cell(feature: Feature, client: str) -> str:
        count = len(set(proofs(feature, client)))
        if count:
            return str(count)
        reason = feature.missing[client]
        if reason not in reasons:
            reasons.append(reason)
        return f"({reasons.index(reason) + 1})"

    lines = [HEAD, "| feature | " + " | ".join([*CLIENTS.values(), *APACHES.values()]) + " |"]
    lines.append("|---" * (1 + len(CLIENTS) + len(APACHES)) + "|")
    for feature in FEATURES:
        cells = [cell(feature, client) for client in CLIENTS]
        cells += [str(len(set(ours(feature, version))) or "") for version in APACHES]
        lines.append(f"| {feature.name} | " + " | ".join(cells) + " |")
    counts = totals()
    lines.append("| *all tests that name it* | " + " | ".join(str(count) for count in counts.values()) + " |")
    lines += ["", "Why there is none:", ""]
    lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    lines += [
        "",
        "## Where each is proved",
        "",
        "Files are in rooms of `tests/interop`, of our client's checks below `tests/contract`.",
        "",
    ]
    for feature in FEATURES:
        tests = ", ".join(f"`{test}`" for test in [*feature.tests, *feature.ours])
        lines.append(f"- {feature.name}: {tests}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
