"""Our servers answer tools as Apache's 5.3.3 do: every code, bare and with fields, and every command of mqadmin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from mqadmin import OURS, Mqadmin
from mqadmin_commands import COMMANDS, NOTHING, SETTINGS, Asked
from mqadmin_conversation import is_dispatched, is_warm, talk
from mqadmin_directions import APACHE_533, OURS_TO_533, OURS_TO_TIANZHOU, differs
from raw_requests import BROKER, DIFFERENT, FILLED, NAMESRV, Raw, Shown
from raw_requests import asked as ask
from servers import serve
from toolchain import SERVERS, ToolchainMissingError

from tianzhou.wire.codes import RequestCode
from waiting import until

CODES = sorted({int(code) for code in RequestCode} | {4711})


class Answers(NamedTuple):
    """What one kind of server answered.

    Attributes:
        bare: broker and name server, to every code without fields.
        raw: to `raw_requests.FILLED`.
        mqadmin: to `mqadmin_commands.COMMANDS`, by name.
    """

    bare: dict[tuple[str, int], int]
    raw: list[Shown]
    mqadmin: dict[str, list[str]]


def answers(kind: str, folder: Path, version: str = SERVERS[0]) -> Answers:
    """What a server says to raw requests, and then to a mqadmin when it has a topic, a producer and a consumer."""
    with serve(kind, folder, clean=False) as server, Mqadmin(version) as tools:
        addresses = {BROKER: server.broker, NAMESRV: server.namesrv}
        is_warm(server)
        for _ in range(2):
            bare = {(to, code): ask(Raw(code, to, only="code"), addresses)[0] for to in addresses for code in CODES}
        raw = []
        for request in FILLED:
            raw.append(ask(request, addresses))
            until(partial(is_dispatched, server), "queues follow the log")
        return Answers(bare, raw, talk(server, tools))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answers, Answers]:
    """Apache's answers and ours."""
    kinds = ("apache", "tianzhou")
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(answers, kind, tmp_path_factory.mktemp(kind) / "data") for kind in kinds]
        try:
            apache, ours = (one.result() for one in running)
        except ToolchainMissingError as error:
            pytest.skip(str(error))
    return apache, ours


@pytest.fixture(scope="module")
def own(both: tuple[Answers, Answers], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    """What our tool prints of Tianzhou and of Apache's 5.3.3, and Apache's tool of each."""
    with ThreadPoolExecutor(2) as pool:
        running = {
            direction: pool.submit(answers, kind, tmp_path_factory.mktemp(kind) / "data", OURS)
            for direction, kind in ((OURS_TO_TIANZHOU, "tianzhou"), (OURS_TO_533, "apache"))
        }
        return {direction: one.result().mqadmin for direction, one in running.items()}


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: asked.name)
def test_the_answer_is_apaches(both: tuple[Answers, Answers], asked: Asked) -> None:
    apache, ours = both[0].mqadmin[asked.name], both[1].mqadmin[asked.name]
    if asked.only == SETTINGS:
        # Paths nobody has set are shown here, too.
        assert set(apache) - set(ours) == set()
    else:
        assert (ours != apache) == differs(APACHE_533, asked.name), (ours, apache)
    assert bool(apache) is (asked.only != NOTHING), "an empty answer shows nothing"


@pytest.mark.parametrize("direction", [OURS_TO_TIANZHOU, OURS_TO_533])
@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: asked.name)
def test_our_tool_prints_what_apaches_prints(
    both: tuple[Answers, Answers], own: dict[str, dict[str, list[str]]], asked: Asked, direction: str
) -> None:
    apaches = both[direction == OURS_TO_TIANZHOU].mqadmin[asked.name]
    ours = own[direction][asked.name]
    assert (ours != apaches) == differs(direction, asked.name), (ours, apaches)


@pytest.mark.parametrize("number", range(len(FILLED)), ids=lambda number: f"{number}-{FILLED[number]}")
def test_a_request_is_answered_as_by_apache(both: tuple[Answers, Answers], number: int) -> None:
    assert both[1].raw[number] == both[0].raw[number]


@pytest.mark.parametrize("to", [BROKER, NAMESRV])
def test_every_code_without_fields_is_answered_as_by_apache(both: tuple[Answers, Answers], to: str) -> None:
    apache, ours = ({code: answer for (who, code), answer in one.bare.items() if who == to} for one in both)
    differing = {code for code in CODES if apache[code] != ours[code]}
    assert differing == (set(DIFFERENT) if to == BROKER else set())
    # Known to nobody is answered with 3, whoever is asked.
    assert apache[4711] == ours[4711] == 3
