"""The blocking face of the client and of admin.

The same classes with the same methods, without `await`: each call hands its work to one event loop in a thread of
its own, which all objects of the process share, and waits. Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tianzhou.sync.admin import Admin
    from tianzhou.sync.producer import Producer
    from tianzhou.sync.pull_consumer import PullConsumer
    from tianzhou.sync.push_consumer import PushConsumer
    from tianzhou.sync.transactions import TransactionProducer

__all__ = ["Admin", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "admin": "Admin",
        "producer": "Producer",
        "pull_consumer": "PullConsumer",
        "push_consumer": "PushConsumer",
        "transactions": "TransactionProducer",
    },
)
