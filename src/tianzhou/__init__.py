"""Tianzhou: a message queue that is RocketMQ to everyone who talks to it, and a pipeline into Spark.

The names most users need are importable from here; everything else lives in the package named after it
(`tianzhou.sync` for blocking code, `tianzhou.spark` for Spark, `tianzhou.errors` for the error tree).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tianzhou.client import Producer, PullConsumer, PushConsumer, TransactionProducer
    from tianzhou.errors import TianzhouError
    from tianzhou.model import (
        ConsumeFromWhere,
        ConsumeResult,
        Message,
        MessageExt,
        MessageModel,
        MessageQueue,
        PullResult,
        PullStatus,
        SendResult,
        SendStatus,
        TransactionSendResult,
        TransactionState,
    )

__version__ = "0.1.0"

_HOMES = {
    "ConsumeFromWhere": "model",
    "ConsumeResult": "model",
    "Message": "model",
    "MessageExt": "model",
    "MessageModel": "model",
    "MessageQueue": "model",
    "Producer": "client",
    "PullConsumer": "client",
    "PullResult": "model",
    "PullStatus": "model",
    "PushConsumer": "client",
    "SendResult": "model",
    "SendStatus": "model",
    "TianzhouError": "errors",
    "TransactionProducer": "client",
    "TransactionSendResult": "model",
    "TransactionState": "model",
}

__all__ = [
    "ConsumeFromWhere",
    "ConsumeResult",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "SendResult",
    "SendStatus",
    "TianzhouError",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionState",
]


def __getattr__(name: str) -> Any:
    # Imported when first used: `import tianzhou` stays quick, and needs none of the packages it could need.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
