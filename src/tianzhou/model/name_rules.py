"""Rules of names: permitted characters and maximum lengths of all names that a peer may send.

Topics and groups have two rules each. A request that *creates* one must follow RocketMQ's rule (`topic_name_problem`,
`group_name_problem`). A request that only mentions one must follow the milder `TOPIC` or `GROUP`. The mild rules also
accept names that RocketMQ does not check: names of brokers and clusters, which are topics as well, and names of light
queues, which publishers choose. All rules reject control characters, unpaired surrogates and names that are too long.

`tianzhou.wire.named_fields` lists which header field carries which kind of name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import IllegalName
from tianzhou.escaping import UNSAFE, shown
from tianzhou.limits import GROUP_NAME, TOPIC_NAME
from tianzhou.model import names

LONGEST_TOPIC: Final = TOPIC_NAME.default
"""Maximum characters of a topic's name."""
LONGEST_GROUP: Final = GROUP_NAME.default
"""Maximum characters of a group's name. A store limits the name of the group's retry topic in the same way."""
LONGEST_FOLDER: Final = 255
"""Maximum bytes of a folder's name in file systems."""
_SHOWN: Final = 64
_IN_FOLDERS: Final = re.compile(r"\A\.{0,2}\Z|[/\x00]|[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class NameRule:
    """Rule for one kind of name in requests that mention it.

    Attributes:
        noun: kind of the name, as the subject of an error text.
        most: maximum number of characters.
        refused: matches the parts that a name may not have.
        allowed: the permitted characters, for an error text.
    """

    noun: str
    most: int
    refused: re.Pattern[str]
    allowed: str

    def problem(self, text: str) -> str | None:
        """Return the problem of a name; None for a valid name."""
        if len(text) > self.most:
            return (
                f"the {self.noun} {shown(text[:_SHOWN])}… has {len(text)} characters, at most {self.most} are allowed"
            )
        found = self.refused.search(text)
        if found is None:
            return None
        what = shown(f"'{found[0]}' at position {found.start()}") if found[0] else "nothing"
        return f"the {self.noun} '{shown(text, _SHOWN)}' has {what}; use {self.allowed}"

    def check(self, text: str) -> None:
        """Reject a name that breaks the rule.

        Raises:
            IllegalName: the name breaks the rule.
        """
        problem = self.problem(text)
        if problem is not None:
            raise IllegalName(problem)


_PRINTED: Final = "characters that can be seen"
_UNSEEN: Final = re.compile(UNSAFE)
_NOT_IN_PATHS: Final = re.compile(rf"\A\.{{1,2}}\Z|[/\\]|{UNSAFE}")
_PATHLESS: Final = "characters that can be seen, without / and \\"

# 400 characters fit %RETRY% and the longest group; POP's retry topics add an underscore and a topic.
TOPIC: Final = NameRule("topic", 400, _NOT_IN_PATHS, _PATHLESS)
GROUP: Final = NameRule("group", LONGEST_GROUP, _NOT_IN_PATHS, _PATHLESS)
CLUSTER: Final = NameRule("cluster name", 255, _NOT_IN_PATHS, _PATHLESS)
BROKER: Final = NameRule("broker name", 255, _NOT_IN_PATHS, _PATHLESS)
CLIENT_ID: Final = NameRule("client id", 1024, _UNSEEN, _PRINTED)
ADDRESS: Final = NameRule("address", 300, re.compile(rf"\s|{UNSAFE}"), "host:port")
ZONE: Final = NameRule("zone name", 255, _UNSEEN, _PRINTED)
NAMESPACE: Final = NameRule("namespace", 255, _UNSEEN, _PRINTED)
KV_KEY: Final = NameRule("key", 400, _UNSEEN, _PRINTED)
MESSAGE_ID: Final = NameRule("message id", 1024, _UNSEEN, _PRINTED)
STATISTIC: Final = NameRule("name of a statistic", 1024, _UNSEEN, _PRINTED)
LIST: Final = NameRule("list of names", 1 << 20, _UNSEEN, _PRINTED)
WRITER: Final = NameRule("writer", 255, _UNSEEN, _PRINTED)


def topic_name_problem(topic: str | None) -> str | None:
    """Return the problem of a new topic's name; None for a valid name (broker.md §5.2)."""
    too_long = "The specified topic is longer than topic max length."
    return _creation_problem("topic", topic) or (too_long if topic and len(topic) > LONGEST_TOPIC else None)


def group_name_problem(group: str | None) -> str | None:
    """Return the problem of a new group's name; None for a valid name (broker.md §5.2)."""
    too_long = f"The specified group is longer than group max length {LONGEST_GROUP}."
    return _creation_problem("group", group) or (too_long if group and len(group) > LONGEST_GROUP else None)


def _creation_problem(noun: str, name: str | None) -> str | None:
    if not name or name.isspace():
        return f"The specified {noun} is blank."
    if names.NAME_PATTERN.fullmatch(name) is None:
        return f"The specified {noun} contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def light_queue_problem(name: str) -> str | None:
    """Return the problem of a light queue's name (`%LMQ%…`); None for a valid name (store.md §7).

    The publisher chooses the text behind the prefix. The queue is a folder, so the text cannot contain a `/`;
    RocketMQ's MQTT proxy sends `%` instead.
    """
    problem = TOPIC.problem(name)
    if problem is None and len(name.encode()) > LONGEST_FOLDER:
        problem = folder_name_problem(name)
    return problem


def folder_name_problem(name: str) -> str | None:
    """Return the problem of a topic's name as the name of a folder in a store; None for a valid name."""
    if _IN_FOLDERS.search(name) is not None or len(name.encode("utf-8", "surrogatepass")) > LONGEST_FOLDER:
        return f"no folder can have the name '{shown(name, _SHOWN)}'"
    return None
