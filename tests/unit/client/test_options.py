"""Options of clients: their keywords for type checkers are those of the dataclasses, misspelled ones are reported."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, ForwardRef

import pytest

from tianzhou.admin import Admin
from tianzhou.client.consumer.pull.options import PullOptions
from tianzhou.client.consumer.push.options import PushOptions
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import (
    ClientKeywords,
    ProducerKeywords,
    PullKeywords,
    PushKeywords,
    ScheduleKeywords,
)
from tianzhou.client.options import ClientOptions
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.errors import ConfigError

NOWHERE = "127.0.0.1:1"


def annotated(kind: Any) -> dict[str, str]:
    """Return names and types as written in the source."""
    if is_dataclass(kind):
        return {option.name: str(option.type) for option in fields(kind)}
    return {name: t.__forward_arg__ if isinstance(t, ForwardRef) else t for name, t in kind.__annotations__.items()}


def test_keywords_and_options_have_the_same_names_and_types() -> None:
    of_clients = {name: t for name, t in annotated(ClientOptions).items() if name != "namesrv_addr"}
    assert annotated(ClientKeywords) == of_clients
    assert annotated(ProducerKeywords) == of_clients | annotated(ProducerOptions)
    assert annotated(PushKeywords) == of_clients | annotated(PushOptions)
    assert annotated(PullKeywords) == of_clients | annotated(PullOptions)
    own = {"auto_commit", "auto_commit_interval_ms", "queues_changed"}
    assert annotated(ScheduleKeywords).keys() == annotated(PullKeywords).keys() - own


@pytest.mark.parametrize(("client", "name"), [(ClientInstance, "ClientInstance"), (Admin, "Admin")])
def test_an_option_that_is_none_is_reported_with_those_near_it(client: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has no option unit_nam; did you mean unit_name or unit_mode"):
        client(NOWHERE, unit_nam="u")


def test_numbers_of_an_instance_are_checked() -> None:
    with pytest.raises(ConfigError, match="max_unpacked_body_bytes is 0; it has to be at least 1"):
        ClientInstance(NOWHERE, max_unpacked_body_bytes=0)
