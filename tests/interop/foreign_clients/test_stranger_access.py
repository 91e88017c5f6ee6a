"""Foreign clients at a broker and name servers with access control of both kinds, with permitted and other accounts.

`credentials.py` does the run: all clients at once, all clients of a Java version in one process. With
`TIANZHOU_INTEROP_SERVER=apache` the brokers are Apache's of 4.9.7 and 5.3.3, whose name servers check no request.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import pytest
from credentials import CONF, COUNT, NAMES, SENDS, Run, done, names_in_use, of_all, run_refused, run_right, taken, topic
from guarded import ACCOUNTS, REFUSED, USERS, Guarded, guarded
from strangers import Line
from toolchain import ToolchainMissingError
from ways import CPP, GO, JAVA, NODE

# All in one worker, so that there is one run.
pytestmark = pytest.mark.xdist_group("access")
QUEUES_OF_NEW = 8
NO_ROUTE = 10005
"""Error code of Java's clients when a name server has refused a route."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """The results for a kind of access control.

    Attributes:
        servers: The used servers, which still run.
        right: Results of each client with the permitted account.
        refused_meanwhile: Refusals of the servers during that.
        wrong: Results of each client with the unpermitted accounts.
    """

    servers: Guarded
    right: dict[str, Run]
    refused_meanwhile: list[str]
    wrong: dict[str, Run]


@pytest.fixture(scope="module", params=[pytest.param(ACCOUNTS, marks=pytest.mark.slow), USERS])
def ran(request: pytest.FixtureRequest, server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Yield the run of a kind."""
    kind: str = request.param
    folder = tmp_path_factory.mktemp(kind)
    try:
        with guarded(server_kind, kind, folder, *names_in_use(), CONF) as servers:
            with of_all(run_right, servers) as working:
                right = {name: one.result() for name, one in working.items()}
            meanwhile = servers.refusals()
            with of_all(run_refused, servers) as working:
                wrong = {name: one.result() for name, one in working.items()}
            yield Ran(servers, right, meanwhile, wrong)
    except ToolchainMissingError as error:
        pytest.skip(str(error))


def _steps(run: Run) -> dict[str, list[Line]]:
    if run.missing:
        pytest.skip(run.missing)
    if run.error is not None:
        raise run.error
    return run.lines


def _right(ran: Ran, name: str) -> tuple[Guarded, dict[str, list[Line]]]:
    return ran.servers, _steps(ran.right[name])


def _of(lines: list[Line], event: str) -> list[Line]:
    return [line for line in lines if line["event"] == event]


def _errors(lines: list[Line]) -> list[Line]:
    return [line for line in lines if "error" in line]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_with_the_right_account_is_stored(ran: Ran, name: str) -> None:
    """One by one, with callbacks, one-way and as a batch, depending on the client; and to a new topic."""
    servers, steps = _right(ran, name)
    assert not _errors(steps["send"])
    assert {line.get("status", "SEND_OK") for line in _of(steps["send"], "sent")} == {"SEND_OK"}
    assert servers.stored(topic(name, "send")) == SENDS[name]
    if name != NODE:
        assert not _errors(steps["one"])
        assert servers.stored(topic(name, "new"), QUEUES_OF_NEW) == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_is_refused_comes_again_and_dies(ran: Ran, name: str) -> None:
    servers, steps = _right(ran, name)
    push = steps["push"]
    assert not _errors(push)
    assert {line["i"] for line in taken(push)} == set(range(COUNT))
    assert any(line["reconsumeTimes"] == 1 for line in taken(push))
    if name in JAVA:
        assert Counter(line["i"] for line in taken(push)) == Counter([*range(COUNT), 1, 2])
        assert servers.stored(f"%DLQ%{topic(name, 'push')}_g") == 1
    else:
        assert done(push) == set(range(COUNT))
        assert servers.stored(f"%DLQ%{topic(name, 'dead')}_g") == 1
    assert servers.committed(f"{topic(name, 'push')}_g", topic(name, "push")) == COUNT


@pytest.mark.parametrize("name", [*JAVA, GO, CPP])
def test_orderly_members_lock_their_queues(ran: Ran, name: str) -> None:
    servers, steps = _right(ran, name)
    order = [line["i"] for line in taken(steps["orderly"])]
    assert order == sorted(order)
    again = 1 if name in JAVA else 7
    assert Counter(order) == Counter([*range(COUNT), again])
    assert servers.committed(f"{topic(name, 'order')}_g", topic(name, "order")) == COUNT


@pytest.mark.parametrize("name", [*JAVA, GO, CPP])
def test_pulls_find_everything_and_commit(ran: Ran, name: str) -> None:
    _, steps = _right(ran, name)
    assert not _errors(steps["lite"])
    assert {line["i"] for line in taken(steps["lite"])} == set(range(SENDS[name]))
    if name in JAVA:
        assert [line["sum"] for line in _of(steps["lite"], "committed")] == [SENDS[name]]
        assert [line["i"] for line in taken(steps["pull"])] == list(range(COUNT))


@pytest.mark.parametrize("name", [*JAVA, GO])
def test_transactions_end_at_once_and_on_a_check(ran: Ran, name: str) -> None:
    servers, steps = _right(ran, name)
    assert not _errors(steps["transact"])
    assert servers.stored(topic(name, "tx")) == (4 if name in JAVA else 2)


@pytest.mark.parametrize("name", [*JAVA, GO])
def test_an_account_that_its_address_lets_in_ends_transactions(ran: Ran, name: str) -> None:
    """Only accounts of 4.x have such addresses; with users of 5.3 no message is sent."""
    servers, steps = _right(ran, name)
    assert not _errors(steps.get("white", []))
    assert servers.stored(topic(name, "white")) == (2 if servers.kind == ACCOUNTS else 0)


@pytest.mark.parametrize("name", JAVA)
def test_requests_are_answered(ran: Ran, name: str) -> None:
    _, steps = _right(ran, name)
    assert len(_of(steps["ask"], "replied")) == 3, steps["ask"]


@pytest.mark.parametrize("name", [*JAVA, GO])
def test_traces_are_stored(ran: Ran, name: str) -> None:
    """The run has waited for records of the producer, and of Java's consumer, in the trace topic."""
    _, steps = _right(ran, name)
    assert len(_of(steps["trace"], "sent")) == 3


def test_nothing_that_the_right_account_did_was_refused(ran: Ran) -> None:
    """Includes the clients' background requests: heartbeats, routes of retry topics, ends of transactions,
    unregistration.
    """
    assert ran.refused_meanwhile == []


def _said(name: str, kind: str, who: str, *, checking: bool) -> tuple[str, ...]:
    """Return texts that the error of a client without the permission to send must contain.

    Args:
        name: The client.
        kind: Kind of access control.
        who: `wrong` (another's secret), `unsigned`, `reader` or `outsider`.
        checking: Whether name servers check, too.
    """
    # Every account gets the route that new topics have, except from Node's client, which does not request it.
    unknown = checking and (who in ("wrong", "unsigned") or (who == "outsider" and kind == USERS and name == NODE))
    if name in JAVA:
        return ("MQClientException", str(NO_ROUTE if unknown else REFUSED[kind]))
    if name == CPP:
        # The client has this error for every failed send, at any broker.
        return ("ProducerSendSyncFailed", "No route info of this topic")
    if name == GO and unknown:
        return ("route info not found",)
    if name == NODE and not unknown:
        return ("Send [1] times, still failed",)
    texts = {
        ACCOUNTS: {
            "wrong": "Check signature failed for accessKey=application",
            "unsigned": "No accessKey is configured",
            "reader": "No default permission for topic:",
            "outsider": "No default permission for topic:",
        },
        USERS: {
            "wrong": "check signature failed.",
            "unsigned": "username cannot be null.",
            "reader": "User:only-reads has no permission to access Topic:",
            "outsider": "User:outsider has no permission to access Topic:",
        },
    }
    return (texts[kind][who], *([f"CODE: {REFUSED[kind]}"] if name == GO else []))


@pytest.mark.parametrize("who", ["wrong", "unsigned", "reader", "outsider"])
@pytest.mark.parametrize("name", NAMES)
def test_who_may_not_send_is_told_in_the_clients_way(ran: Ran, server_kind: str, name: str, who: str) -> None:
    lines = _steps(ran.wrong[name])[f"one-{who}"]
    (error,) = _errors(lines)
    said = f"{error['error']} {error.get('code', '')} {error.get('text', '')}"
    for part in _said(name, ran.servers.kind, who, checking=server_kind == "tianzhou"):
        assert part in said
    assert not _of(lines, "sent")
    assert ran.servers.stored(topic(name, "one")) == 0


@pytest.mark.parametrize("name", NAMES)
def test_who_may_not_consume_gets_nothing(ran: Ran, server_kind: str, name: str) -> None:
    """Java's pulls have an error; push consumers wait, except for Go's, which end without a route; a reader with
    permission has all messages.
    """
    servers, steps = ran.servers, _steps(ran.wrong[name])
    kind = servers.kind
    for who in ("wrong", "unsigned", "outsider"):
        assert not taken(steps[f"push-{who}"])
        if name in JAVA:
            assert not taken(steps[f"pull-{who}"])
            (error,) = _errors(steps[f"pull-{who}"])
            told = server_kind == "apache" or (who == "outsider" and kind == ACCOUNTS)
            if told:
                assert (error["error"], error["code"]) == ("MQBrokerException", REFUSED[kind])
            else:
                assert "Can not find Message Queue for this topic" in error["text"]
    reader = steps["pull-reader" if name in JAVA else "push-reader"]
    assert sorted(line["i"] for line in taken(reader)) == list(range(COUNT))
    group = f"{topic(name, 'push')}_g"
    assert servers.committed(group, topic(name, "push")) == COUNT, "nobody has changed it"
