"""The tables of `benchmarks/clients.py`."""

from __future__ import annotations

import argparse


def made(clients, rounds, *, among=("ours", "pure", "cpp")):
    run = object.__new__(clients.Run)
    run.arguments = argparse.Namespace(ways=["one"], brokers=["tianzhou", "apache"], clients=list(among))
    run.rounds = rounds
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in run.table().splitlines()]


def test_medians_beside_the_other_client_and_what_is_wanted(clients) -> None:
    rows = made(
        clients,
        {
            "one.tianzhou.ours.msgs_per_s": [9_000.0, 12_000.0, 30_000.0],
            "one.tianzhou.ours.cpu_us_per_msg": [16.0],
            "one.tianzhou.cpp.msgs_per_s": [2_000.0],
            "one.tianzhou.cpp.cpu_us_per_msg": [200.0],
            "one.apache.ours.msgs_per_s": [1_700.0],
            "one.apache.cpp.msgs_per_s": [1_000.0],
        },
    )
    assert rows[0][-2:] == ["wanted", ""]
    assert rows[2][2:] == ["messages/s", "12,000", "not run", "2,000", "6.00x", "≥ 10,000, ≥ 5x", "met"]
    assert rows[3][2:] == ["CPU µs per message", "16.00", "not run", "200.00", "0.08x", "", ""]
    assert rows[4][2:] == ["messages/s", "1,700", "not run", "1,000", "1.70x", "≥ 5x", "**not met**"]


def test_what_was_not_run_is_named_and_nothing_put_in_its_place(clients) -> None:
    rows = made(clients, {"one.tianzhou.ours.msgs_per_s": [9_000.0]}, among=("ours",))
    assert rows[2][3:] == ["9,000", "≥ 10,000", "**not met**"]
    assert rows[4][3:] == ["not run", "", ""]
