"""The blocking classes have the methods of the async ones, with the same names and signatures."""

import importlib.machinery
import importlib.util
import inspect
import sys
import typing
from functools import cached_property
from pathlib import Path

import pytest

from tianzhou import admin, client, sync
from tianzhou.sync import admin as blocking_admin
from tianzhou.sync import pull_consumer as blocking_reader

# Methods for internal callers only: an instance or a broker calls some on a consumer
# (tianzhou.client.cluster.member.GroupMember), consumers call some on their inner producer, and two are the halves of a
# transaction.
INTERNAL = {
    "async_send_limits",
    "send_limit_ms",
    "consume_directly",
    "consume_offsets",
    "conclude",
    "consumer_data",
    "prepare",
    "resend_for_retry",
    "reset_offsets",
    "running_info",
    "send_outside",
    "topics",
    "wake_rebalance",
}

BLOCKING_ALONE = {"send_async"}
"""Methods of blocking classes whose async counterpart is a task of an ordinary method."""

PAIRS = [
    (client.Producer, sync.Producer, INTERNAL),
    (client.TransactionProducer, sync.TransactionProducer, INTERNAL),
    (client.PushConsumer, sync.PushConsumer, INTERNAL),
    (client.PullConsumer, sync.PullConsumer, INTERNAL),
    (client.QueueReader, blocking_reader.QueueReader, INTERNAL),
    (admin.Admin, sync.Admin, set()),
    (admin.Topics, blocking_admin.Topics, set()),
    (admin.Groups, blocking_admin.Groups, set()),
    (admin.Access, blocking_admin.Access, set()),
    (admin.Cluster, blocking_admin.Cluster, set()),
    (admin.Messages, blocking_admin.Messages, set()),
    (admin.DeadLetters, blocking_admin.DeadLetters, set()),
    (admin.Transactions, blocking_admin.Transactions, set()),
    (admin.Delays, blocking_admin.Delays, set()),
    (admin.Undeliverable, blocking_admin.Undeliverable, set()),
    (admin.SendLimits, blocking_admin.SendLimits, set()),
]
SAME_MEANING = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}


# Created around an async object by another blocking class.
INNER = {
    getattr(blocking_admin, name)
    for name in (
        "Topics",
        "Groups",
        "Access",
        "Cluster",
        "Messages",
        "DeadLetters",
        "Transactions",
        "Delays",
        "Undeliverable",
        "SendLimits",
    )
}
INNER |= {blocking_reader.QueueReader}


def members(cls):
    return {name: value for base in reversed(cls.__mro__[:-1]) for name, value in vars(base).items()}


def public(cls):
    names = members(cls)
    return {name for name in names if not name.startswith("_")} | {name for name in SAME_MEANING if name in names}


@pytest.mark.parametrize(
    ("asynchronous", "blocking", "internal"), PAIRS, ids=lambda value: getattr(value, "__name__", "")
)
def test_same_methods_with_same_signatures(asynchronous, blocking, internal):
    for name in sorted(public(asynchronous) - internal):
        ours = SAME_MEANING.get(name, name)
        assert hasattr(blocking, ours), f"sync.{blocking.__name__} has no {ours}"
        original, twin = members(asynchronous)[name], members(blocking)[ours]
        if isinstance(original, property):
            assert isinstance(twin, property), f"{ours} is a property"
            original, twin = original.fget, twin.fget
        elif isinstance(original, cached_property):
            assert isinstance(twin, cached_property), f"{ours} is made when it is first used"
            original, twin = original.func, twin.func
        assert inspect.signature(twin) == inspect.signature(original), f"{blocking.__name__}.{ours}"
        assert not inspect.iscoroutinefunction(twin), f"{blocking.__name__}.{ours} would have to be awaited"


@pytest.mark.parametrize(
    ("asynchronous", "blocking", "internal"), PAIRS, ids=lambda value: getattr(value, "__name__", "")
)
def test_nothing_that_the_async_class_lacks(asynchronous, blocking, internal):
    known = {SAME_MEANING.get(name, name) for name in public(asynchronous)}
    extra = {name for name in members(blocking) if not name.startswith("_")} - known - BLOCKING_ALONE
    assert not extra, f"only sync.{blocking.__name__} has {extra}"


def test_the_same_options_with_the_same_defaults():
    for asynchronous, blocking, _internal in PAIRS:
        if blocking not in INNER:
            assert inspect.signature(blocking) == inspect.signature(asynchronous), blocking.__name__


@pytest.mark.parametrize("name", sync.__all__)
def test_an_option_that_is_none_is_seen_by_type_checkers(name):
    # mypy accepts any keyword for `**keywords: Any`, and for Unpack only those of the TypedDict.
    constructor = getattr(sync, name).__init__
    home = vars(sys.modules[constructor.__module__])
    for parameter in inspect.signature(constructor).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            kind = eval(parameter.annotation, home)
            assert typing.get_origin(kind) is typing.Unpack, f"sync.{name} takes whatever it is given"
            (keywords,) = typing.get_args(kind)
            assert typing.is_typeddict(keywords)
            assert "retires" not in keywords.__optional_keys__ >= {"client_id", "tls"}


def facade():
    path = Path(__file__).parents[2] / "scripts" / "facade"
    loader = importlib.machinery.SourceFileLoader("facade", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("facade", loader))
    sys.modules["facade"] = module  # dataclasses look up their module
    loader.exec_module(module)
    return module


def test_the_blocking_classes_are_as_written(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["facade", "--check"])
    assert facade().main() == 0, capsys.readouterr().out


def test_a_method_by_hand_that_does_not_exist_is_reported():
    written = facade()
    written.BY_HAND.add("Producer.send_in_transactions")
    with pytest.raises(written.Unwritable, match=r"nothing matches Producer\.send_in_transactions"):
        written.main()


def test_an_option_to_leave_out_that_does_not_exist_is_reported():
    written = facade()
    written.KEYWORDS = (written.Keywords("K", "TypedDict", "tianzhou.client.options:ClientOptions", ("namesrv",)),)
    with pytest.raises(written.Unwritable, match="ClientOptions has no option namesrv"):
        written.keywords_module()
