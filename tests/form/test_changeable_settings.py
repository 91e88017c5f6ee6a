"""Every setting is classed: it may be changed while the server runs, or there is a reason why not."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import tianzhou
from tianzhou.broker import changeable_settings as of_broker
from tianzhou.broker.ignored_settings import IGNORED as IGNORED_OF_BROKER
from tianzhou.broker.settings import BrokerSettings
from tianzhou.namesrv import changeable_settings as of_name_server
from tianzhou.namesrv.settings import IGNORED as IGNORED_OF_NAME_SERVER
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.admin_gate import DANGEROUS, OPEN
from tianzhou.remoting.tls import TlsSettings
from tianzhou.setting_rules import problems
from tianzhou.settings import key_of, keys_of
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.codes import OF_BOTH, OF_NAME_SERVERS, RequestCode

SERVERS: list[tuple[Any, Any, tuple[type, ...]]] = [
    (of_broker, IGNORED_OF_BROKER, (BrokerSettings, StoreSettings)),
    (of_name_server, IGNORED_OF_NAME_SERVER, (NamesrvSettings,)),
]
of_each_server = pytest.mark.parametrize(("module", "idle", "classes"), SERVERS, ids=["broker", "name server"])


def listed(table: dict[str, tuple[str, ...]]) -> list[str]:
    return [key for keys in table.values() for key in keys]


@of_each_server
def test_every_key_is_classed_once(module: Any, idle: Any, classes: tuple[type, ...]) -> None:
    fixed, without_effect = listed(module.FIXED), set(listed(idle))
    keys = keys_of(*classes)
    assert sorted(set(fixed)) == sorted(fixed)
    assert keys - module.AT_ONCE - set(fixed) - without_effect == set(), "say whether it may be changed"
    assert module.AT_ONCE & set(fixed) == set()
    assert module.AT_ONCE & without_effect == set()
    assert (module.AT_ONCE | set(fixed)) <= keys
    assert module.RULES.changeable == keys - set(fixed)


@of_each_server
def test_paths_ports_names_and_secrets_are_never_changed(module: Any, idle: Any, classes: tuple[type, ...]) -> None:
    dangerous = re.compile(
        r"path|home|port$|address$|ip[12]$|^(broker|cluster)name|role$|black|plugin|tls|^acl|secret|password|header|proxy"
        r"|remoteadmin",
        re.IGNORECASE,
    )
    harmless = {"fetchNamesrvAddrByAddressServer"}
    assert {key for key in module.RULES.changeable if dangerous.search(key)} <= harmless
    assert keys_of(TlsSettings).isdisjoint(module.RULES.changeable)


@of_each_server
def test_every_number_that_does_something_has_a_range(module: Any, idle: Any, classes: tuple[type, ...]) -> None:
    without_effect, ranges = set(listed(idle)), module.RULES.ranges
    for one in classes:
        hints = get_type_hints(one)
        for field in dataclasses.fields(one):
            key = key_of(field)
            if hints[field.name] in (int, float) and key not in without_effect:
                assert key in ranges, f"{key}: say from where to where it may be"
    assert set(ranges) <= keys_of(*classes)


@of_each_server
def test_the_defaults_may_be(module: Any, idle: Any, classes: tuple[type, ...]) -> None:
    assert problems(module.RULES, *(one() for one in classes)) == []


def test_secrets_are_found_by_kind() -> None:
    kinds = re.compile(r"password|secret|credential|token|header$|socksproxy", re.IGNORECASE)
    for one in (BrokerSettings, StoreSettings, NamesrvSettings, TlsSettings):
        for field in dataclasses.fields(one):
            if kinds.search(key_of(field)):
                assert field.metadata.get("secret"), f"{key_of(field)}: mark it as a secret"
                assert not field.repr


def test_every_request_code_is_dangerous_or_open() -> None:
    every = set(RequestCode)
    assert every - DANGEROUS.keys() - OPEN == set(), "say whether it can lose messages or stop the service"
    assert DANGEROUS.keys() & OPEN == set()
    assert (DANGEROUS.keys() | OPEN) == every


def test_name_servers_serve_what_is_said_to_be_theirs() -> None:
    from tianzhou.namesrv.handlers import Handlers

    served = Handlers._routes.__code__.co_names
    assert {code.name for code in RequestCode if code.name in served} == {
        RequestCode(code).name for code in OF_NAME_SERVERS | OF_BOTH
    }


def test_no_repr_shows_a_password() -> None:
    kinds = re.compile(r"password|passwd|secret|credential|security_token", re.IGNORECASE)
    shown = []
    for path in sorted((Path(tianzhou.__file__).parent).rglob("*.py")):
        for made in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(made, ast.ClassDef) or not any(
                "dataclass" in ast.unparse(d) for d in made.decorator_list
            ):
                continue
            for line in made.body:
                if isinstance(line, ast.AnnAssign) and kinds.search(ast.unparse(line.target)):
                    value = "" if line.value is None else ast.unparse(line.value)
                    if not re.search(r"repr=False|secret=True|secret\(", value):
                        shown.append(f"{path.name}: {made.name}.{ast.unparse(line.target)}")
    assert shown == []
