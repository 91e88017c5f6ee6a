"""Unusual rule files of RocketMQ 4.x, changes of such files, and policies of 5.3 with competing entries.

Apache's classes, whose answers are recorded, and ours decide the same cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import NamedTuple

MAIN = "conf/plain_acl.yml"
MORE = "conf/acl/more.yml"
KEY, SECRET = "appUser1", "appSecret1"
OUTSIDE = "192.168.0.1"
_HEAD = f"accounts:\n- accessKey: {KEY}\n  secretKey: {SECRET}\n"
OF_ADDRESS = _HEAD
"""Beginning of an account; its further lines follow."""


class Question(NamedTuple):
    """A request with the credentials of an account.

    Attributes:
        ip: address of the peer.
        code: request code.
        fields: header fields.
        key: access key; empty for an unsigned request.
        secret: secret of the signature.
    """

    ip: str
    code: int
    fields: tuple[tuple[str, str], ...]
    key: str = ""
    secret: str = ""

    def __str__(self) -> str:
        names = ",".join(value for _, value in self.fields)
        who = self.key or "nobody"
        with_secret = f" with {self.secret}" if self.secret not in ("", SECRET) else ""
        return f"{self.code} {names} by {who}{with_secret} at {self.ip}"


def send(topic: str, ip: str = OUTSIDE, key: str = KEY, secret: str = SECRET) -> Question:
    """Return a send."""
    return Question(ip, 10, (("topic", topic),), key, secret)


def pull(topic: str, group: str) -> Question:
    """Return a pull."""
    return Question(OUTSIDE, 11, (("topic", topic), ("consumerGroup", group)), KEY, SECRET)


ADMINISTER = Question(OUTSIDE, 17, (("topic", "made"),), KEY, SECRET)
UNSIGNED = Question(OUTSIDE, 10, (("topic", "orders"),))
OFTEN = (send("orders"), send("other"), pull("orders", "cg"), ADMINISTER, UNSIGNED)
"""Requests that are tried with most files."""


class File(NamedTuple):
    """A rule file at a server's start.

    Attributes:
        text: its text; None for no file.
        questions: requests after the start.
    """

    text: str | None
    questions: tuple[Question, ...] = OFTEN


def _account(lines: str) -> File:
    return File(_HEAD + "".join(f"  {line}\n" for line in lines.split("\n")))


FILES: dict[str, File] = {
    "no file": File(None),
    "an empty file": File(""),
    "comments only": File("# accounts come later\n"),
    "an empty mapping": File("{}\n"),
    "a text": File("accounts\n"),
    "a list": File("- accounts\n"),
    "no YAML": File("accounts: [{accessKey: appUser1\n"),
    "two documents": File(f"{_HEAD}---\n{_HEAD}"),
    "accounts: []": File("accounts: []\n"),
    "accounts without a value": File("accounts:\n"),
    "accounts as a text": File("accounts: none\n"),
    "accounts as a mapping": File(f"accounts:\n  accessKey: {KEY}\n  secretKey: {SECRET}\n"),
    "an account that is null": File("accounts: [null]\n"),
    "an account that is a text": File("accounts: [appUser1]\n"),
    "a white list without accounts": File("globalWhiteRemoteAddresses: [192.168.0.*]\n"),
    "a white list that is a text": File(f"globalWhiteRemoteAddresses: 192.168.0.*\n{_HEAD}"),
    "a white list with an empty entry": File(f"globalWhiteRemoteAddresses: ['', null]\n{_HEAD}"),
    "a short secret": File(f"accounts:\n- accessKey: {KEY}\n  secretKey: short\n"),
    "no secret": File(f"accounts:\n- accessKey: {KEY}\n"),
    "nothing but keys": _account("admin: false"),
    "keys that are numbers": File(
        "accounts:\n- {accessKey: 12345678, secretKey: 87654321, defaultTopicPerm: PUB}\n",
        (send("orders", key="12345678", secret="87654321"),),
    ),
    "a secret that is an octal number": File(
        "accounts:\n- {accessKey: appUser1, secretKey: 012345670, defaultTopicPerm: PUB}\n",
        (send("orders", secret="012345670"), send("orders", secret="2739128")),
    ),
    "a secret that is a list": File(
        "accounts:\n- {accessKey: appUser1, secretKey: [appSecret1], defaultTopicPerm: PUB}\n",
        (send("orders"), send("orders", secret="[appSecret1]"), send("orders", secret='["appSecret1"]')),
    ),
    "a secret that is true": File(
        "accounts:\n- {accessKey: appUser1, secretKey: true, defaultTopicPerm: PUB}\n", (send("orders"),)
    ),
    "anchors and merge keys": File(
        "base: &base {secretKey: appSecret1, defaultTopicPerm: PUB, topicPerms: &perms [other=DENY]}\n"
        "accounts:\n- {<<: *base, accessKey: appUser1, defaultGroupPerm: SUB}\n"
    ),
    "a permission in small letters": _account("defaultTopicPerm: pub"),
    "permissions with a comma": _account("defaultTopicPerm: PUB,SUB"),
    "permissions with blanks inside": _account("defaultTopicPerm: PUB | SUB"),
    "a permission with blanks around": _account('defaultTopicPerm: " PUB "'),
    "an unknown permission": _account("defaultTopicPerm: ALL"),
    "a permission that is a number": _account("defaultTopicPerm: 4"),
    "a permission that is a list": _account("defaultTopicPerm: [PUB]"),
    "DENY of one topic": _account("defaultTopicPerm: PUB\ntopicPerms: [other=DENY]"),
    "a listed permission in small letters": _account("defaultTopicPerm: PUB\ntopicPerms: [orders=pub, other=PUB]"),
    "a listed permission with blanks": _account('topicPerms: [" orders = PUB ", "other=PUB|SUB"]'),
    "two signs of equality": _account("topicPerms: [orders==PUB]"),
    "a sign of equality at the end": _account("topicPerms: [orders=PUB=]"),
    "a listed permission without a word": _account("topicPerms: [orders=]"),
    "a listed permission with a blank word": _account('topicPerms: ["orders= "]'),
    "a listed permission without a sign": _account("topicPerms: [orders]"),
    "a listed permission that is null": _account("topicPerms: [null]"),
    "a listed permission that is a mapping": _account("defaultTopicPerm: PUB\ntopicPerms: [{orders: PUB}]"),
    "listed permissions as a text": _account("topicPerms: orders=PUB"),
    "listed permissions as a mapping": _account("topicPerms: {orders: PUB}"),
    "a permission listed twice": _account("topicPerms: [orders=PUB, orders=DENY]"),
    "a group by its retry topic": _account("defaultTopicPerm: SUB\ngroupPerms: ['%RETRY%cg=SUB']"),
    "a group among topics": _account("defaultTopicPerm: SUB\ngroupPerms: [cg=DENY]\ntopicPerms: ['%RETRY%cg=SUB']"),
    "keys in other letters": _account("DefaultTopicPerm: PUB\ntopic_perms: [other=DENY]"),
    "keys with hyphens": _account("default-topic-perm: PUB\ntopic-perms: [other=DENY]"),
    "an unknown key": _account("defaultTopicPerms: PUB"),
    "a key that is a number": _account("5: PUB"),
    "admin: 1": _account("admin: 1"),
    "admin: 2": _account("admin: 2"),
    "admin: 1.5": _account("admin: 1.5"),
    "admin: yes": _account("admin: yes"),
    "admin as the text yes": _account("admin: 'yes'"),
    "admin as the text Y": _account("admin: 'Y'"),
    "admin as the text 1": _account("admin: '1'"),
    "admin as the text TRUE": _account("admin: 'TRUE'"),
    "admin as an empty text": _account("admin: ''"),
    "admin as a list": _account("admin: [true]"),
    "isAdmin": _account("isAdmin: true"),
    "an administrator with a list": _account("admin: true\ntopicPerms: [orders=PUB]"),
    "an administrator with an empty list": _account("admin: true\ntopicPerms: []"),
    "an administrator with an odd list": _account("admin: true\ntopicPerms: [orders=pub]"),
    "an account with an address": _account("defaultTopicPerm: DENY\nwhiteRemoteAddress: 192.168.0.*"),
    "an account with a list of addresses": _account("whiteRemoteAddress: [192.168.0.*]"),
    "an account with a wrong address": _account("whiteRemoteAddress: home"),
    "an account listed twice": File(
        f"{_HEAD}  defaultTopicPerm: PUB\n- accessKey: {KEY}\n  secretKey: {SECRET}\n  admin: true\n"
    ),
    "an account listed twice, the last may less": File(
        f"{_HEAD}  defaultTopicPerm: PUB\n- accessKey: {KEY}\n  secretKey: {SECRET}\n  defaultTopicPerm: DENY\n"
    ),
    "an account listed twice with two secrets": File(
        f"{_HEAD}  defaultTopicPerm: PUB\n- accessKey: {KEY}\n  secretKey: appSecret2\n  defaultTopicPerm: PUB\n",
        (send("orders"), send("orders", secret="appSecret2")),
    ),
    "a version that is a text": File(f"{_HEAD}  defaultTopicPerm: PUB\ndataVersion: one\n"),
    "a version without numbers": File(f"{_HEAD}  defaultTopicPerm: PUB\ndataVersion: [{{counter: one}}]\n"),
    "a version of texts": File(f"{_HEAD}  defaultTopicPerm: PUB\ndataVersion: [{{counter: '1', timestamp: '5'}}]\n"),
    "UTF-16": File(_HEAD + "  defaultTopicPerm: PUB\n"),
}
"""Rule files by their peculiarity. The last one is written in UTF-16."""

PATTERNS = (
    "127.0.0.1", "127.0.*.1", "127.*.0.1", "*.0.0.1", "127.0.0.*", "127.0.0.1-20", "127.0.1-5.9", "127.0.1-5.*",
    "127.0.0.20-1", "127.0.0.0-0", "127.0.0.0-9", "127.0.0-0.*", "127.0.0.1-2-3", "127.0.0.-5", "127.0.0.5-",
    "127.0.0.1 - 20", "127.0.0. *", " 127.0.0.* ", "127.0.0.*.", "127.0.*", "127.*", "127", "1-20", "0127.0.0.*",
    "127.00.0.*", "127.x.*.*", "127.x.0.*", "127.300.*.*", "127.0.0.1*", "127.0.0.{1,9}", "127.0.{0,5}.1",
    "127.0.{0.1}", "127.0.0.{}", "{127.0.0.1}", "127.0.0.1,127.0.5.9", "127.0.0.1, 127.0.5.9", "127.0.0.1,", ",",
    "localhost", "127.0.0.0/8", "*", " * ", "*.*.*.*", "*:*:*:*:*:*:*:*", "fe80::1", "FE80:0:0:0:0:0:0:1", "fe80::*",
    "fe80::1-20", "fe80::1-20:*", "fe80::*:*", "fe80::0-0", "::1-20", "::5:1-20", "fe80::{1,20}", "::ffff:127.0.0.1",
)  # fmt: skip
"""Patterns of a global white list."""
ADDRESSES = (
    "127.0.0.0", "127.0.0.1", "127.0.0.9", "127.0.0.20", "127.0.5.1", "127.0.5.9", "127.9.0.1", "10.0.0.1",
    "fe80:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:0:20", "fe80:0:0:0:0:0:5:20", "0:0:0:0:0:0:5:7",
)  # fmt: skip
"""Addresses, in the format of Java's servers, that are tried with each pattern."""


class Change(NamedTuple):
    """A change of rule files while a server runs.

    Attributes:
        before: texts at the start, by path.
        after: texts of the changed files; None deletes one.
    """

    before: dict[str, str]
    after: dict[str, str | None]


_PUB = f"{_HEAD}  defaultTopicPerm: PUB\n"
_OTHER = "accounts:\n- {accessKey: appUser2, secretKey: appSecret2, defaultTopicPerm: PUB}\n"
CHANGES: dict[str, Change] = {
    "nothing": Change({MAIN: _PUB}, {}),
    "accounts: []": Change({MAIN: _PUB}, {MAIN: "accounts: []\n"}),
    "accounts without a value": Change({MAIN: _PUB}, {MAIN: "accounts:\n"}),
    "an empty mapping": Change({MAIN: _PUB}, {MAIN: "{}\n"}),
    "an empty file": Change({MAIN: _PUB}, {MAIN: ""}),
    "comments only": Change({MAIN: _PUB}, {MAIN: "# accounts come later\n"}),
    "no YAML": Change({MAIN: _PUB}, {MAIN: "accounts: [{accessKey: appUser1\n"}),
    "a fault in an account": Change({MAIN: _PUB}, {MAIN: f"{_HEAD}  topicPerms: [orders]\n"}),
    "an unknown word": Change({MAIN: _PUB}, {MAIN: f"{_HEAD}  defaultTopicPerm: NONE\n"}),
    "another account": Change({MAIN: _PUB}, {MAIN: _OTHER}),
    "the account is listed twice, the last may less": Change(
        {MAIN: _PUB}, {MAIN: f"{_PUB}- accessKey: {KEY}\n  secretKey: {SECRET}\n  defaultTopicPerm: DENY\n"}
    ),
    "the account is listed twice, the first may less": Change(
        {MAIN: _PUB},
        {MAIN: f"{_HEAD}  defaultTopicPerm: DENY\n" + _PUB.removeprefix("accounts:\n")},
    ),
    "the file is deleted": Change({MAIN: _PUB}, {MAIN: None}),
    "a file below acl is deleted": Change({MAIN: _OTHER, MORE: _PUB}, {MORE: None}),
    "a file below acl is new": Change({MAIN: _OTHER}, {MORE: _PUB}),
    "one of two files is broken, the other revokes": Change(
        {MAIN: _PUB, MORE: _OTHER}, {MORE: "[", MAIN: "accounts: []\n"}
    ),
    "a new file is broken, the other revokes": Change({MAIN: _PUB}, {MORE: "[", MAIN: "accounts: []\n"}),
}
"""Changes by their description."""
ASKED_AFTER = send("orders")

RESOURCE, ACTION = "Topic:orders", "Pub"
ENTRIES = tuple(
    f"{resource}={decision}"
    for resource in (RESOURCE, "Topic:ord*", "Topic:orde*", "Topic:*", "*")
    for decision in ("Allow", "Deny")
)
"""Entries of policies that all apply to the resource."""


def policies() -> Iterator[tuple[str, ...]]:
    """Yield every set of up to three entries."""
    for size in (1, 2, 3):
        yield from combinations(ENTRIES, size)


def orders(entries: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the entries in every possible order of creation."""
    yield from permutations(entries)
