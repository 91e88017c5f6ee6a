"""A cluster with a topic of orders, and who consumes them."""

from contextlib import contextmanager

import pytest


@pytest.fixture
def cluster(tianzhou_cluster):
    tianzhou_cluster.create_topic("orders")
    return tianzhou_cluster


@pytest.fixture
def consuming(cluster):
    """`with consuming() as seen`: a group that notes the bodies it consumes."""

    @contextmanager
    def consume(tags="*", **options):
        seen = []
        consumer = cluster.push_consumer("billing", **options)
        consumer.subscribe("orders", tags, handler=lambda message: seen.append(message.body))
        with consumer:
            yield seen

    return consume
