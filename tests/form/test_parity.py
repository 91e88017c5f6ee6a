"""The page of RocketMQ's features has the place of each, and names existing tests and the peers in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "parity.md"
NOT_YET = "Not yet"

PEERS: dict[str, str] = {
    "contract/client_suite.py": "own A4 A5",
    "contract/consumer_suite.py": "own A4 A5",
    "contract/producing_suite.py": "own A4 A5",
    "contract/sql_suite.py": "own A4 A5",
    "contract/": "own",
    "fault/test_kill_ledger.py": "own",
    "fault/test_disk_full.py": "own",
    # The filter library of both versions of Apache's broker, called directly.
    "interop/apache_servers/test_filter_vs_java.py": "A4 A5",
    "interop/apache_servers/test_filter_vs_java.py::test_bloom_filters_set_the_same_bits": "A5",
    "interop/foreign_clients/test_mixed_groups.py::test_members_of_five_kinds_share_one_group": "own J5 Go C++ Node",
    "interop/foreign_clients/test_mixed_groups.py::test_orderly_members_of_both_kinds_never_overlap": "own J5",
    "interop/apache_servers/test_acl_vs_apache.py": "own A4 A5",
    "interop/apache_servers/test_broker_forms.py": "A5",
    "interop/apache_servers/test_mqadmin.py": "J5 A5",
    "interop/apache_servers/test_mqadmin.py::test_a_request_is_answered_as_by_apache": "A5",
    "interop/apache_servers/test_mqadmin.py::test_every_code_without_fields_is_answered_as_by_apache": "A5",
    "interop/foreign_clients/test_replies.py": "own J4 J5",
    "interop/foreign_clients/test_shares.py": "own J4 J5",
    "interop/apache_servers/test_apache_beside_ours.py": "own J4 J5 Go C++ Node A4 A5",
    "interop/stores/test_store_after_kill.py": "A4 A5",
    "interop/stores/test_store_handover.py": "A4 A5",
    "interop/stores/test_store_kinds.py": "A4 A5",
    "interop/stores/test_store_structures.py": "A5",
    "interop/apache_servers/test_mqadmin_access.py::test_accounts_are_made_changed_and_deleted": "J4",
    "interop/apache_servers/test_mqadmin_access.py::test_users_and_policies_are_made_changed_and_deleted": "J5",
    "interop/foreign_clients/test_stranger_access.py": "J4 J5 Go C++ Node",
    "interop/foreign_clients/test_stranger_filters.py::test_push_consumers_get_what_they_select": "J4 J5 Go",
    "interop/foreign_clients/test_stranger_places.py::test_a_namespace_keeps_names_apart": "J4 J5 Go Node",
    "interop/foreign_clients/test_stranger_places.py::test_clients_use_the_fast_port": "J4 J5",
    "interop/foreign_clients/test_stranger_places.py::test_only_wanted_tags_come": "J4 J5 Go C++ Node",
    "interop/foreign_clients/test_stranger_places.py::test_a_new_group_begins_at_a_time": "J4 J5 Go Node",
    "interop/foreign_clients/test_stranger_resets.py": "J4 J5 Go C++ Node",
    "interop/foreign_clients/test_stranger_retries.py::test_refused_messages_end_as_at_apaches_broker": "J4 J5 Go A5",
    "interop/foreign_clients/test_stranger_retries.py": "A5",
    "interop/foreign_clients/test_stranger_transactions.py": "J4 J5 Go",
    "interop/foreign_clients/test_stranger_ways.py": "J4 J5 Go C++ Node",
    "interop/foreign_clients/test_stranger_ways.py::test_messages_in_order": "J4 J5 Go C++",
    "interop/foreign_clients/test_stranger_ways.py::test_offsets_are_reset_while_the_group_is_online": "J4 J5 Go C++",
    "interop/foreign_clients/test_stranger_ways.py::test_batches_for_the_handler": "J4 J5 Go",
    "interop/foreign_clients/test_stranger_ways.py::test_a_pull_waits_for_a_message": "J4 J5",
    "interop/foreign_clients/test_stranger_ways.py::test_lite_pull_assigns_seeks_commits_and_shares": "J4 J5",
    "interop/foreign_clients/test_stranger_ways.py::test_messages_are_traced": "J4 J5 Go",
    "interop/foreign_clients/test_stranger_ways.py::test_go_asks_and_java_answers": "J5 Go",
    "interop/foreign_clients/test_stranger_ways.py::test_cpp_pulls_all_and_sends_with_callbacks": "C++",
    "interop/foreign_clients/test_stranger_ways.py::test_a_refused_message_is_dead_at_last": "C++ Node",
    "interop/foreign_clients/test_strangers.py": "J4 J5",
    "interop/foreign_clients/test_strangers.py::test_every_send_is_acknowledged": "J4 J5 Go C++ Node",
    "interop/foreign_clients/test_strangers.py::test_clustering_group_reads_all_once": "J4 J5 Go C++ Node",
    "interop/foreign_clients/test_strangers.py::test_large_bodies_were_compressed": "J4 J5 Go C++ Node",
    "interop/foreign_clients/test_strangers.py::test_members_of_a_group_share_the_queues": "J4 J5 Go Node",
    "interop/foreign_clients/test_strangers.py::test_topics_are_created_by_the_first_send": "J4 J5 Go C++",
    "interop/apache_servers/test_tls_vs_apache.py": "own A5",
    "interop/replication/test_master_slave_pairs.py": "own A4 A5",
    "interop/replication/test_dledger_groups.py": "own A4 A5",
    "interop/apache_servers/test_trace_vs_java.py": "J4 J5",
    "interop/apache_servers/test_two_masters.py": "own J5 Go",
    "interop/apache_servers/test_two_masters.py::"
    "test_orderly_members_own_every_queue_again_soon_after_one_left": "own J5",
}
"""Peers in a test, by the longest prefix of its name in this table. Other tests send bare requests."""

ORDER = ["own", "J4", "J5", "Go", "C++", "Node", "A4", "A5"]
ONLY_5 = {
    "offsets_tell_the_ends_and_times_of_a_queue",
    "topics_are_made_changed_and_deleted",
    "offsets_are_reset_with_and_without_members",
    "groups_select_different_things",
}
"""Checks that Apache's 4.9.7 does not pass (see `interop/apache_servers/test_client_vs_apache.py`)."""


def rows() -> list[tuple[str, list[str]]]:
    """Return the cells of each row, with the heading above it."""
    found, heading = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|") and not line.startswith(("|---", "| feature ", "| peer ")):
            found.append((heading, [cell.strip() for cell in line.strip("|").split("|")]))
    return found


def quoted(cell: str) -> list[str]:
    """Return the texts between back-ticks."""
    return re.findall(r"`([^`]+)`", cell)


def peers_of(test: str) -> set[str]:
    """Return the peers in a test."""
    if test.rpartition("::")[2] in ONLY_5:
        return {"own", "A5"}
    known = max((name for name in PEERS if test.startswith(name)), key=len, default=None)
    return set(PEERS[known].split()) if known else set()


ROWS = rows()
WITH_TESTS = [(cells[0], test) for _, cells in ROWS for test in quoted(cells[2])]
FEATURES = [(heading, cells) for heading, cells in ROWS if heading != NOT_YET and len(cells) == 4]


def test_the_page_has_features_and_what_is_missing() -> None:
    missing = [cells for heading, cells in ROWS if heading == NOT_YET]
    assert len(FEATURES) > 80
    assert len(missing) > 5
    assert all(cells[1] for cells in missing), "say what a user sees instead"
    said = re.search(r"(\d+) features, (\d+) not yet", PAGE.read_text(encoding="utf-8"))
    assert said is not None, "the first paragraph says how many there are"
    assert (int(said[1]), int(said[2])) == (len(FEATURES), len(missing))


def test_no_feature_is_listed_twice() -> None:
    names = [(heading, cells[0]) for heading, cells in ROWS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("cells", [cells for _, cells in FEATURES], ids=lambda cells: cells[0])
def test_every_feature_is_somewhere_and_tested(cells: list[str]) -> None:
    modules = quoted(cells[1])
    assert modules, "name its modules"
    for module in modules:
        path = ROOT / "src" / "tianzhou" / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), module
    tests = quoted(cells[2])
    assert tests, "name a test"
    taking_part = set().union(*(peers_of(test) for test in tests))
    assert cells[3] == " ".join(peer for peer in ORDER if peer in taking_part), "these peers take part in its tests"


@pytest.mark.parametrize("where", sorted({test for _, test in WITH_TESTS}))
def test_the_tests_named_are_there(where: str) -> None:
    file, _, name = where.partition("::")
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    if name:
        assert re.search(rf"^(?:async )?def {re.escape(name)}\(", source, re.MULTILINE), where


@pytest.mark.parametrize("known", sorted(PEERS))
def test_peers_are_told_of_tests_that_are_there(known: str) -> None:
    file, _, name = known.partition("::")
    path = ROOT / "tests" / file
    assert path.exists()
    if name:
        assert re.search(rf"^def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE), known
