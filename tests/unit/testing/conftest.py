"""A cluster with a topic of orders, and a consumer group."""

from contextlib import contextmanager

import pytest


@pytest.fixture
def cluster(tianzhou_cluster):
    tianzhou_cluster.create_topic("orders")
    return tianzhou_cluster


@pytest.fixture
def consuming(cluster):
    """Return a context manager with a group that records the bodies it consumes: `with consuming() as seen`."""

    @contextmanager
    def consume(tags="*", **options):
        seen = []
        consumer = cluster.push_consumer("billing", **options)
        consumer.subscribe("orders", tags, handler=lambda message: seen.append(message.body))
        with consumer:
            yield seen

    return consume
