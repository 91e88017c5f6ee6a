"""Our evaluation of rule files and policies, compared with the recorded answers of the classes of Apache's servers.

Every run compares ours with the recording: ours never let a request in that Apache's refuse, and the page
docs/reference/access-matrix.md lists each request that Apache's let in and ours refuse. `./test --slow` asks Apache's
classes again.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import access_cases as cases
import access_readings as ours
import access_tables as tables
import pytest
import toolchain
from access_cases import CHANGES, FILES, PATTERNS, Question
from recorded import is_as_recorded

PLAIN, USERS = "4.9.7", "5.3.3"
WATCHED_MS = 11_000
"""Two periods of Apache's file watcher, in ms."""
TIMEOUT_S = 300


def answers(version: str, lines: Iterable[str], *arguments: str) -> list[str]:
    """Return the answers of the classes of a version."""
    program = "PlainOracle" if version == PLAIN else "PolicyOracle"
    try:
        command = [toolchain.tool("java"), *toolchain.SHORT_LIVED, "-cp", toolchain.access_oracle(version), program]
    except toolchain.ToolchainMissingError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [*command, *arguments],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=toolchain.environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def word(value: str | bytes) -> str:
    """Return a text for the program; the point makes an empty one visible."""
    return "." + base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def asked(case: str, question: Question) -> str:
    """Return the line of a question."""
    fields = " ".join(f"{word(name)} {word(value)}" for name, value in question.fields)
    return f"Q {case} {question.ip} {word(question.key)} {word(question.secret)} {question.code} {fields}"


def is_yes(answer: str) -> bool:
    """Whether an answer accepts a request."""
    assert answer == "yes" or answer.startswith("no "), answer
    return answer == "yes"


@pytest.mark.slow
def test_rule_files_are_read_by_apaches_as_recorded(tmp_path: Path) -> None:
    lines = []
    for number, (name, file) in enumerate(FILES.items()):
        case = f"f{number}"
        if file.text is not None:
            lines.append(f"F {case} {word(cases.MAIN)} {word(ours.encoded(name, file.text))}")
        lines += [f"S {case}", *(asked(case, question) for question in file.questions)]
    told = iter(answers(PLAIN, lines, str(tmp_path)))
    found: dict[str, Any] = {}
    for name, file in FILES.items():
        started = next(told) == "started"
        replies = {str(question): next(told) for question in file.questions}
        found[name] = {"starts": started, "answers": {q: is_yes(a) for q, a in replies.items()} if started else {}}
    is_as_recorded("access-files-4.9.7", found, source=f"rocketmq-acl {PLAIN}", questions=map(repr, FILES.items()))


@pytest.mark.slow
def test_patterns_are_read_by_apaches_as_recorded(tmp_path: Path) -> None:
    lines = []
    for number, pattern in enumerate(PATTERNS):
        text = f"globalWhiteRemoteAddresses: ['{pattern}']\n"
        lines += [f"F p{number} {word(cases.MAIN)} {word(text)}", f"S p{number}"]
        lines += [asked(f"p{number}", cases.send("orders", ip, key="")) for ip in cases.ADDRESSES]
    told = iter(answers(PLAIN, lines, str(tmp_path)))
    found: dict[str, Any] = {}
    for pattern in PATTERNS:
        started = next(told) == "started"
        replies = {ip: next(told) for ip in cases.ADDRESSES}
        # When a pattern makes RocketMQ fail at each request, no request is accepted either.
        fails = started and any("No accessKey" not in text for text in replies.values() if text != "yes")
        found[pattern] = {
            "starts": started, "fails": fails, "in": [ip for ip, text in replies.items() if started and is_yes(text)]
        }  # fmt: skip
    is_as_recorded("access-patterns-4.9.7", found, source=f"rocketmq-acl {PLAIN}", questions=PATTERNS)


@pytest.mark.slow
def test_changed_files_are_read_by_apaches_as_recorded(tmp_path: Path) -> None:
    """RocketMQ compares times of files, so change each file after a pause, and wait for the reload."""
    lines = []
    for number, change in enumerate(CHANGES.values()):
        lines += [f"F c{number} {word(path)} {word(text)}" for path, text in change.before.items()]
        lines.append(f"S c{number}")
    lines.append("W 1500")
    for number, change in enumerate(CHANGES.values()):
        for path, text in change.after.items():
            lines.append(f"D c{number} {word(path)}" if text is None else f"F c{number} {word(path)} {word(text)}")
    lines.append(f"W {WATCHED_MS}")
    lines += [asked(f"c{number}", cases.ASKED_AFTER) for number in range(len(CHANGES))]
    told = answers(PLAIN, lines, str(tmp_path))
    assert told[: len(CHANGES)] == ["started"] * len(CHANGES)
    found = {name: is_yes(answer) for name, answer in zip(CHANGES, told[len(CHANGES) :], strict=True)}
    is_as_recorded("access-changes-4.9.7", found, source=f"rocketmq-acl {PLAIN}", questions=map(repr, CHANGES.items()))


@pytest.mark.slow
def test_policies_are_decided_by_apaches_as_recorded() -> None:
    asked_of = [(entries, ordered) for entries in cases.policies() for ordered in cases.orders(entries)]
    lines = [f"{cases.RESOURCE} {cases.ACTION} {' '.join(ordered)}" for _, ordered in asked_of]
    found: dict[str, set[str]] = {}
    for (entries, _), answer in zip(asked_of, answers(USERS, lines), strict=True):
        assert answer in ("allowed", "the decision is deny."), answer
        found.setdefault(" ".join(entries), set()).add(ours.ALLOWED if answer == "allowed" else ours.REFUSED)
    decisions = {entries: one.pop() if len(one) == 1 else ours.EITHER for entries, one in found.items()}
    is_as_recorded("access-policies-5.3.3", decisions, source=f"rocketmq-auth {USERS}", questions=map(repr, asked_of))


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_no_less_strictly_than_by_apaches(tmp_path: Path, name: str) -> None:
    theirs, own = tables.files()[name], ours.read_file(tmp_path, name)
    assert own["starts"] == theirs["starts"], own["says"]
    assert all(let_in <= theirs["answers"][question] for question, let_in in own["answers"].items()), own
    assert (own["answers"] != theirs["answers"]) == (name in tables.STRICTER_FILES), own
    assert own["starts"] or "plain_acl.yml" in own["says"], "the file is named"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_no_more_addresses_than_to_apaches(pattern: str) -> None:
    theirs, own = tables.patterns()[pattern], ours.read_one_pattern(pattern)
    assert own["starts"] == (theirs["starts"] and not theirs["fails"]), own["says"]
    assert set(own["in"]) <= set(theirs["in"])
    assert (own["in"] != theirs["in"]) == (pattern in tables.STRICTER_PATTERNS)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_revokes_no_less_than_at_apaches(tmp_path: Path, name: str) -> None:
    theirs, own = tables.changes()[name], ours.after_change(tmp_path, name)
    assert own <= theirs
    assert (own != theirs) == (name in tables.SOONER_REVOKED)


@pytest.mark.parametrize("pattern", [pattern for pattern, one in tables.patterns().items() if one["fails"]])
def test_a_pattern_that_apaches_fail_with_at_each_request_keeps_no_former_rules(tmp_path: Path, pattern: str) -> None:
    ours.write(tmp_path, cases.MAIN, b"globalWhiteRemoteAddresses: ['*']\n")
    rules = ours.rules_of(tmp_path)
    ours.write(tmp_path, cases.MAIN, f"globalWhiteRemoteAddresses: ['*', '{pattern}']\n".encode())
    asyncio.run(rules.refresh())
    assert not ours.is_let_in(rules, cases.UNSIGNED)
    assert pattern in rules.faults[tmp_path / cases.MAIN]
    ours.write(tmp_path, cases.MAIN, f"{cases.OF_ADDRESS}  whiteRemoteAddress: '{pattern}'\n".encode())
    asyncio.run(rules.refresh())
    assert rules.rules.accounts == frozenset(), "the account is left out"


def test_policies_are_decided_no_less_strictly_than_by_apaches() -> None:
    theirs = tables.policies()
    assert len(theirs) == len(list(cases.policies()))
    for entries in cases.policies():
        decision = theirs[" ".join(entries)]
        if ours.decided(entries) == ours.ALLOWED:
            assert decision == ours.ALLOWED, entries
        elif decision == ours.ALLOWED:
            assert tables.stricter_because(entries), entries


def test_what_is_odd_in_a_file_is_warned_about_with_its_line(tmp_path: Path) -> None:
    for number, (name, line) in enumerate(tables.WARNED_LINES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert f"plain_acl.yml: line {line}: " in ours.read_file(folder, name)["says"], name
