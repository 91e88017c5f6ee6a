"""Hooks that exit: each exit is logged or refuses the send, and the event loop continues."""

import asyncio

import pytest

from tianzhou.client import hooks
from tianzhou.errors import ClientError

EXITS = [SystemExit(3), GeneratorExit(), asyncio.CancelledError("mine")]


@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
def test_a_hook_that_exits_is_logged_with_its_traceback_and_the_others_are_called(error, caplog):
    seen = []

    def exits(*_):
        raise error

    def looks(context):
        seen.append(context)
        return exits

    afters = hooks.begin([exits, looks], "context")
    hooks.end([*afters, seen.append], "end")
    assert hooks.stamps([exits, lambda message, key: {"region": key}], "message", "eu") == {"region": "eu"}
    assert seen == ["context", "end"]
    assert [record.exc_info[1].__cause__ for record in caplog.records] == [error] * 3


@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
def test_a_forbidding_hook_that_exits_refuses_the_send(error):
    def exits(_):
        raise error

    context = hooks.SendContext("g", [], "T[b:0]", "a:1", hooks.MessageKind.NORMAL, False, 0, "")
    with pytest.raises(ClientError, match=f"refused to send to .*{type(error).__name__}"):
        hooks.check_forbidden([exits], context)
