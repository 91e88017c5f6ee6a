"""The layers of a send: only those of its options, in their order, without pass-through functions in between."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted import ScriptedCluster

from client_probe import ClientProbe
from tianzhou import Message, MessageQueue, Producer

HOOKS = {"send_hooks": [lambda context: None]}
PRESSURE = {"enable_backpressure_for_async_mode": True}
LAYERS = {
    "to a queue": ({}, ["Producer.send", "Delivery.send", "Transport.send"]),
    "hooks": (HOOKS, ["Producer.send", "Delivery.send", "HookedTransport.send", "Transport.send"]),
    "all": (
        HOOKS | PRESSURE | {"outbox": True},
        [
            "Producer.send",
            "with_outbox.<locals>.send_or_keep",
            "with_backpressure.<locals>.send_when_there_is_room",
            "Delivery.send",
            "HookedTransport.send",
            "Transport.send",
        ],
    ),
}


def callers() -> list[str]:
    """Return the call stack of the current function, from `Producer.send` down."""
    frame, found = sys._getframe(2), []
    while frame is not None and "Producer.send" not in found:
        found.append(frame.f_code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]
    return found[::-1]


@pytest.mark.parametrize("name", LAYERS)
def test_a_send_goes_through_the_layers_that_are_wanted(name: str, tmp_path: Path) -> None:
    options: dict[str, Any]
    options, layers = LAYERS[name]
    if "outbox" in options:
        options = options | {"outbox": tmp_path}
    seen = []

    async def main() -> None:
        async with ScriptedCluster(1) as cluster, Producer("P", cluster.address, **options) as producer:
            invoke_frame = producer.instance.remoting.invoke_frame

            async def noted(*arguments: Any) -> Any:
                seen.append(callers())
                return await invoke_frame(*arguments)

            producer.instance.remoting.invoke_frame = noted  # type: ignore[method-assign]
            await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-0", 0))

    asyncio.run(main())
    assert seen == [layers]


def test_a_plain_send_has_no_layers() -> None:
    assert ClientProbe(Producer("P", "127.0.0.1:1")).has_bare_stack
