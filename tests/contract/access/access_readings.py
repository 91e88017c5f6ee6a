"""Decisions of our rules on the cases of `access_cases`."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import access_cases as cases
from access_cases import Question

from tianzhou.access.acl_changes import read_policies
from tianzhou.access.addresses import read_pattern
from tianzhou.access.needs import plain_needs
from tianzhou.access.policies import PolicyType, UserPolicies
from tianzhou.access.requests import AccessDenied, AccessRequest
from tianzhou.access.resources import Action, Need, Resource, ResourceType
from tianzhou.access.signatures import signature
from tianzhou.errors import ConfigError
from tianzhou.remoting.gates.plain_files import PlainFiles
from tianzhou.wire.bodies.access import PolicyEntryInfo, PolicyInfo

ALLOWED, REFUSED, EITHER = "allowed", "refused", "either"
UTF_16 = "UTF-16"


def encoded(name: str, text: str) -> bytes:
    """Return a file's bytes."""
    return text.encode("utf-16" if name == UTF_16 else "utf-8")


def write(folder: Path, path: str, content: bytes | None) -> None:
    """Write a file in a server's home, readable by its owner alone; None deletes it."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        file.unlink()
        return
    file.write_bytes(content)
    file.chmod(0o600)


def rules_of(folder: Path) -> PlainFiles:
    """Return the rules of a server's home.

    Raises:
        ConfigError: a file cannot be read.
    """
    return PlainFiles(folder / cases.MAIN, folder / "conf" / "acl", partial(plain_needs, cluster="DefaultCluster"))


def is_let_in(rules: PlainFiles, question: Question) -> bool:
    """Whether the rules accept a request."""
    fields = dict(question.fields)
    if question.key:
        fields["AccessKey"] = question.key
        fields["Signature"] = signature(fields, b"", question.secret)
    try:
        rules.check(AccessRequest(question.code, fields, ip=question.ip))
    except AccessDenied:
        return False
    return True


def read_file(folder: Path, name: str) -> dict[str, Any]:
    """Return whether a server starts with a file, its decisions, and its warnings."""
    file = cases.FILES[name]
    if file.text is not None:
        write(folder, cases.MAIN, encoded(name, file.text))
    try:
        rules = rules_of(folder)
    except ConfigError as error:
        return {"starts": False, "says": str(error).replace(f"{folder}/", ""), "answers": {}}
    warnings = [text.replace(f"{folder}/", "") for config in rules.configs.values() for text in config.warnings]
    answers = {str(question): is_let_in(rules, question) for question in file.questions}
    return {"starts": True, "says": "; ".join(warnings), "answers": answers}


def read_one_pattern(pattern: str) -> dict[str, Any]:
    """Return whether a pattern is valid, and which of the addresses match it."""
    try:
        addresses, oddity = read_pattern(pattern)
    except ConfigError as error:
        return {"starts": False, "says": str(error), "in": []}
    return {"starts": True, "says": oddity, "in": [ip for ip in cases.ADDRESSES if addresses.matches(ip)]}


def after_change(folder: Path, name: str) -> bool:
    """Whether the account of the beginning is still accepted after a change."""
    change = cases.CHANGES[name]
    for path, text in change.before.items():
        write(folder, path, text.encode())
    rules = rules_of(folder)
    assert is_let_in(rules, cases.ASKED_AFTER) == (name != "a file below acl is new")
    for path, new in change.after.items():
        write(folder, path, None if new is None else new.encode())
    asyncio.run(rules.refresh())
    return is_let_in(rules, cases.ASKED_AFTER)


def decided(entries: tuple[str, ...]) -> str:
    """Return the decision about the resource of the cases; it is the same in every order of the entries."""
    kind, _, name = cases.RESOURCE.partition(":")
    need = Need(Resource(ResourceType(kind), name), (Action(cases.ACTION),))
    found = set()
    for ordered in cases.orders(entries):
        infos = [
            PolicyEntryInfo(resource, ["All"], [], decision)
            for resource, _, decision in (entry.partition("=") for entry in ordered)
        ]
        policies = read_policies([PolicyInfo(PolicyType.CUSTOM.value, infos)])
        found.add(REFUSED if UserPolicies(policies).refusal(need, "10.0.0.1") else ALLOWED)
    (decision,) = found
    return decision
