"""Tianzhou: a message queue that is RocketMQ to everyone who talks to it, and a pipeline into Spark.

The names most users need are importable from here; everything else lives in the package named after it
(`tianzhou.sync` for blocking code, `tianzhou.spark` for Spark, `tianzhou.errors` for the error tree).
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

# Imported when first used: `import tianzhou` stays quick, and needs none of the packages it could need.
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
