"""Our servers answer tools like Apache's 5.3.3: every code, bare and with fields, and every command of mqadmin.

The answers of Apache's servers and of Apache's mqadmin are recorded (`recorded.py`). Every run sends the commands of
Apache's mqadmin and of ours to our servers. `./test --slow` sends the commands of both tools to Apache's servers.
"""

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
from recorded import is_as_recorded, plain, recorded
from servers import serve
from toolchain import SERVERS, ToolchainMissingError

from tianzhou.wire.codes import RequestCode
from waiting import until

# READ_USERS (31020) is ours and served only with access control, which these brokers do not have. Requests about limits
# of senders (31030, 31031) are ours, and newer than the recording of Apache's servers.
OURS_ALONE = {RequestCode.READ_USERS, RequestCode.UPDATE_SEND_LIMITS, RequestCode.READ_SEND_LIMITS}
CODES = sorted({int(code) for code in RequestCode} - OURS_ALONE | {4711})
NAME = f"mqadmin-{SERVERS[0]}"
QUESTIONS = [*map(str, CODES), *map(repr, FILLED), *map(repr, COMMANDS)]


class Answers(NamedTuple):
    """The answers of one kind of server.

    Attributes:
        bare: answers of broker and name server to every code without fields.
        raw: answers to `raw_requests.FILLED`.
        mqadmin: answers to `mqadmin_commands.COMMANDS`, by name.
    """

    bare: dict[str, dict[str, int]]
    raw: list[Shown]
    mqadmin: dict[str, list[str]]


def answers(kind: str, folder: Path, version: str = SERVERS[0]) -> Answers:
    """Return a server's answers to raw requests, and then to a mqadmin while it has a topic, a producer and a
    consumer.
    """
    with serve(kind, folder, clean=False, takes_tls=True) as server, Mqadmin(version) as tools:
        addresses = {BROKER: server.broker, NAMESRV: server.namesrv}
        is_warm(server)
        for _ in range(2):
            bare = {
                to: {str(code): ask(Raw(code, to, only="code"), addresses)[0] for code in CODES}
                for to in (BROKER, NAMESRV)
            }
        raw = []
        for request in FILLED:
            raw.append(ask(request, addresses))
            until(partial(is_dispatched, server), "queues follow the log")
        return Answers(bare, raw, talk(server, tools))


@pytest.fixture(scope="module")
def apache() -> Answers:
    """Return the recorded answers of Apache's servers; the last part is the output of Apache's own mqadmin."""
    return Answers(**recorded(NAME, QUESTIONS))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    """Return the answers of our servers to Apache's mqadmin and to ours, by version of the tool."""
    tools = (SERVERS[0], OURS)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(answers, "tianzhou", tmp_path_factory.mktemp("ours") / "data", tool) for tool in tools]
        try:
            return {tool: Answers(**plain(one.result()._asdict())) for tool, one in zip(tools, running, strict=True)}
        except ToolchainMissingError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def ours_at_apache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the output of our mqadmin about Apache's servers."""
    try:
        return answers("apache", tmp_path_factory.mktemp("apache") / "data", OURS).mqadmin
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_apaches_servers_answer_its_tools_as_recorded(tmp_path: Path) -> None:
    try:
        live = answers("apache", tmp_path / "data")
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    source = f"name server, broker and mqadmin {SERVERS[0]}"
    is_as_recorded(NAME, live._asdict(), source=source, questions=QUESTIONS)


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: asked.name)
def test_the_answer_is_apaches(apache: Answers, ours: dict[str, Answers], asked: Asked) -> None:
    theirs, own = apache.mqadmin[asked.name], ours[SERVERS[0]].mqadmin[asked.name]
    if asked.only == SETTINGS:
        # Paths without a configured value are shown here, too.
        assert set(theirs) - set(own) == set()
    else:
        assert (own != theirs) == differs(APACHE_533, asked.name), (own, theirs)
    assert bool(theirs) is (asked.only != NOTHING), "an empty answer shows nothing"


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: asked.name)
def test_our_tool_prints_what_apaches_prints(ours: dict[str, Answers], asked: Asked) -> None:
    own, apaches = (ours[tool].mqadmin[asked.name] for tool in (OURS, SERVERS[0]))
    assert (own != apaches) == differs(OURS_TO_TIANZHOU, asked.name), (own, apaches)


@pytest.mark.slow
@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: asked.name)
def test_our_tool_prints_of_apaches_servers_what_apaches_prints(
    apache: Answers, ours_at_apache: dict[str, list[str]], asked: Asked
) -> None:
    own, apaches = ours_at_apache[asked.name], apache.mqadmin[asked.name]
    assert (own != apaches) == differs(OURS_TO_533, asked.name), (own, apaches)


@pytest.mark.parametrize("number", range(len(FILLED)), ids=lambda number: f"{number}-{FILLED[number]}")
def test_a_request_is_answered_as_by_apache(apache: Answers, ours: dict[str, Answers], number: int) -> None:
    assert ours[SERVERS[0]].raw[number] == apache.raw[number]


@pytest.mark.parametrize("to", [BROKER, NAMESRV])
def test_every_code_without_fields_is_answered_as_by_apache(apache: Answers, ours: dict[str, Answers], to: str) -> None:
    theirs, own = apache.bare[to], ours[SERVERS[0]].bare[to]
    differing = {code for code in CODES if theirs[str(code)] != own[str(code)]}
    assert differing == (set(DIFFERENT) if to == BROKER else set())
    # An unknown code gets 3 from both servers.
    assert theirs["4711"] == own["4711"] == 3
