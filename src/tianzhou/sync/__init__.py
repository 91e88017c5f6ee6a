"""The blocking face of the client and of admin.

The same classes with the same methods, without `await`: each call hands its work to one event loop in a thread of
its own, which all objects of the process share, and waits. Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tianzhou.sync.admin import Admin
    from tianzhou.sync.producer import Producer
    from tianzhou.sync.pull_consumer import PullConsumer
    from tianzhou.sync.push_consumer import PushConsumer
    from tianzhou.sync.transactions import TransactionProducer

_HOMES = {
    "Admin": "admin",
    "Producer": "producer",
    "PullConsumer": "pull_consumer",
    "PushConsumer": "push_consumer",
    "TransactionProducer": "transactions",
}

__all__ = ["Admin", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
