"""Options of clients: their keywords for type checkers are those of the dataclasses, and misspelled ones are told."""

from __future__ import annotations

from typing import Any, ForwardRef

import pytest

from tianzhou.admin import Admin
from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.client.consumer.pull.options import PullKeywords, PullOptions
from tianzhou.client.consumer.push.options import PushKeywords, PushOptions
from tianzhou.client.instance import ClientInstance
from tianzhou.client.options import ClientKeywords, ClientOptions
from tianzhou.client.producer.options import ProducerKeywords, ProducerOptions
from tianzhou.errors import ConfigError

NOWHERE = "127.0.0.1:1"


def annotated(kind: Any) -> dict[str, str]:
    """Names and types as they are written, but for what comes from a class above."""
    types = kind.__annotations__
    return {name: t.__forward_arg__ if isinstance(t, ForwardRef) else t for name, t in types.items()}


def test_keywords_and_options_have_the_same_names_and_types() -> None:
    assert annotated(ClientKeywords) == {n: t for n, t in annotated(ClientOptions).items() if n != "namesrv_addr"}
    assert annotated(ProducerKeywords) == annotated(ClientKeywords) | annotated(ProducerOptions)


@pytest.mark.parametrize(("keywords", "options"), [(PushKeywords, PushOptions), (PullKeywords, PullOptions)])
def test_those_of_consumers_have_them_too(keywords: Any, options: Any) -> None:
    own = annotated(ConsumerOptions) | annotated(options)
    assert annotated(keywords) == annotated(ClientKeywords) | own


@pytest.mark.parametrize(("client", "name"), [(ClientInstance, "ClientInstance"), (Admin, "Admin")])
def test_an_option_that_is_none_is_told_with_those_near_it(client: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has no option unit_nam; did you mean unit_name or unit_mode"):
        client(NOWHERE, unit_nam="u")


def test_numbers_of_an_instance_are_checked() -> None:
    with pytest.raises(ConfigError, match="max_unpacked_body_bytes is 0; it has to be at least 1"):
        ClientInstance(NOWHERE, max_unpacked_body_bytes=0)
