"""Tianzhou: a message queue that speaks RocketMQ's protocol to all its clients, and a pipeline into Spark.

This package exports the names that most users need. Other names are in subpackages: `tianzhou.sync` for blocking code,
`tianzhou.spark` for Spark, `tianzhou.errors` for the tree of errors.
"""

from __future__ import annotations

from tianzhou.lazy_exports import TYPE_CHECKING, lazy_exports

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

__all__ = [
    "ConsumeFromWhere", "ConsumeResult", "Message", "MessageExt", "MessageModel", "MessageQueue", "Producer",
    "PullConsumer", "PullResult", "PullStatus", "PushConsumer", "SendResult", "SendStatus", "TianzhouError",
    "TransactionProducer", "TransactionSendResult", "TransactionState",
]  # fmt: skip

# Imported at first use, so `import tianzhou` is fast and needs no optional packages.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "client": "Producer PullConsumer PushConsumer TransactionProducer",
        "errors": "TianzhouError",
        "model": "ConsumeFromWhere ConsumeResult Message MessageExt MessageModel MessageQueue PullResult "
        "PullStatus SendResult SendStatus TransactionSendResult TransactionState",
    },
    present=("__version__",),
)
