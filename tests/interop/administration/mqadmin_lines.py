"""Command lines of mqadmin for all 89 sub-commands of 5.3.3, and the comparable part of their output.

The files `lines/*.txt` have the lines in the order of the run: a sub-command, and below it, indented, its command
lines. `~` marks a line that does not end by itself. `-n` with the name server is added to each line. Apache's tool at
Apache's servers answered them all (`tests/golden/apache/mqadmin-lines-5.3.3.json`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from mqadmin_commands import GROUP, TOPIC

FOLDER: Final = Path(__file__).with_name("lines")
DONE, REFUSED, USAGE = "done", "refused", "usage"
"""Ends of a command line: with its answer, with an error of a server or a value, with the usage of the sub-command."""
KEYS_ONLY: Final = frozenset({"brokerStatus", "getBrokerConfig", "getNamesrvConfig"})
"""Sub-commands that print figures and settings of the server; ours must have at least Apache's names."""
_UNORDERED: Final = """
    topicList topicRoute updateTopic updateTopicList updateSubGroup updateSubGroupList producer exportMetadata
    consumerProgress brokerConsumeStats consumerConnection resetOffsetByTime skipAccumulatedMessage allocateMQ listUser
    listAcl getAcl copyAcl copyUser getColdDataFlowCtrInfo queryMsgById queryMsgByUniqueKey queryMsgByOffset
    consumerStatus getConsumerConfig statsAll queryMsgByKey printMsg printMsgByQueue consumeMessage
"""
UNORDERED: Final = frozenset(_UNORDERED.split())
"""Sub-commands that print Java hash maps, so the order of their lines is not compared."""
FRESH: Final = frozenset({"sendMessage", "consumeMessage", "queryMsgByUniqueKey", "brokerConsumeStats"})
"""Sub-commands of Apache's tool that work only once per process."""


class Line(NamedTuple):
    """A command line.

    Attributes:
        command: the sub-command.
        rest: its arguments; `{…}` is a value of the server.
        endless: whether it does not end by itself.
    """

    command: str
    rest: str
    endless: bool

    @property
    def text(self) -> str:
        """Return the line in the format of the records and the page."""
        return f"{self.command} {self.rest}".strip()

    def words(self, values: Mapping[str, str]) -> list[str]:
        """Return the arguments of the tool.

        Args:
            values: values for `{…}`, by name.
        """
        rest = [word.format_map(values) for word in shlex.split(self.rest)]
        return [self.command, *rest] if self.command == "help" else [self.command, "-n", values["ns"], *rest]


@cache
def lines() -> tuple[Line, ...]:
    """Return all lines, in the order of the run."""
    found, command = [], ""
    for file in sorted(FOLDER.glob("*.txt")):
        for text in file.read_text(encoding="utf-8").splitlines():
            if text.startswith("  "):
                rest = text.strip()
                endless = rest.startswith("~")
                found.append(Line(command, rest.removeprefix("~").strip(), endless))
            elif text and not text.startswith("#"):
                command = text.strip()
    return tuple(found)


def names() -> list[str]:
    """Return a name for each line: its number, counted from 1, and its text."""
    return [f"{number:03d} {line.text}" for number, line in enumerate(lines(), 1)]


class Outcome(NamedTuple):
    """The comparable part of a command line's end.

    Attributes:
        exit_code: of the process.
        kind: `DONE`, `REFUSED` or `USAGE`.
        code: RocketMQ's code of an error; empty without one.
        text: the output; error texts are not compared.
    """

    exit_code: int
    kind: str
    code: str
    text: str

    def recorded(self) -> str:
        """Return the outcome in the format of the records: a line of its own, then the text."""
        return f"{self.exit_code} {self.kind} {self.code}".rstrip() + f"\n{self.text}"

    @classmethod
    def of_record(cls, record: str) -> Outcome:
        """Return the outcome of a record."""
        head, _, text = record.partition("\n")
        exit_code, kind, *code = head.split()
        return cls(int(exit_code), kind, "".join(code), text)


_CODE: Final = re.compile(r"CODE: (\d+)")
_TRACE: Final = re.compile(r"^\s*(at |\.\.\. \d+ more)")
_FAILED: Final = re.compile(r"^(Caused by: )?[\w.$]+(Exception|Error)(: |$)", re.MULTILINE)
_TOLD: Final = re.compile(
    r"^(\[error\]|the file path .* does not exists|updateTopicPerm error |Please (input|set|make sure) "
    r"|Broker name must be set |set the read mode error|RocksDB path is invalid|miss dump log file name"
    r"|clusterAddrTable is empty|cluster \[.*\] not exist|The sub command \w+ not exist|false$)",
    re.MULTILINE,
)
"""Errors that Apache's tool prints as a line, with exit code 0."""
_USAGE: Final = re.compile(r"^usage: ", re.MULTILINE)
_INTERRUPTED: Final = re.compile(r"^(org\.apache|java\.lang\.Interrupted).*", re.MULTILINE | re.DOTALL)


def outcome(line: Line, printed: str, exit_code: int, places: Mapping[str, str]) -> Outcome:
    """Return the comparable part of the output of Apache's tool.

    Args:
        line: the command line.
        printed: the whole output.
        exit_code: of the process; 0 when the process continues.
        places: addresses and folders of the server, with their names.
    """
    if line.endless:
        printed = _INTERRUPTED.sub("", printed)
    usage = _USAGE.search(printed)
    if usage is not None and line.command != "help":
        before = printed[: usage.start()].strip()
        if exit_code or not before:
            return Outcome(exit_code, USAGE, "", erased(before, places))
        printed = before  # Two sub-commands print their usage below an answer.
    if _FAILED.search(printed) or _TOLD.search(printed):
        told = [text for text in printed.splitlines() if not _TRACE.match(text)]
        text = erased("\n".join(told), places)
        return Outcome(exit_code, REFUSED, " ".join(_CODE.findall(text)[-1:]), text)
    return Outcome(exit_code, DONE, "", comparable(line, printed, places))


_KEPT_WIDTH: Final = (
    (re.compile(r"127\.0\.0\.1:\d{5}\b"), "<address>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d(?:[,:.]\d{3})?"), "<time>"),
    (re.compile(r"\b20\d{12}(?:\d{3})?\b"), "<time>"),
    (re.compile(r"\b1\d{12}\b"), "<ms>"),
)
"""Values that differ from run to run and have a fixed length, so that later columns stay in place."""
_MEASURED: Final = (
    # Times of handlers, which only Tianzhou's members report.
    (re.compile(r"^(?:handler:\S+|cores) +: .*$", re.MULTILINE), ""),
    (re.compile(r"(?<![0-9A-F])[0-9A-F]{32,}(?![0-9A-F])"), "<id>"),
    (re.compile(r"127\.0\.0\.1@\S+?(?=[\s,)\]}\"]|$)"), "<client>"),
    (re.compile(r"(?<=-PRODUCE-|-CONSUME-)\d+"), "<serial>"),
    (re.compile(r"\S*/rocketmq/msgbodys/\S+"), "<body>"),
    (re.compile(r"(?<![\w.])-?\d+\.\d+(?:E-?\d+)?\b(?!\.)"), "<number>"),
    (re.compile(r"(?<=#MasterCommitLogMaxOffset\t)\d+"), "<offset>"),
    (re.compile(r"\brt=\d+ms|(?<=spentTimeMills=)\d+|(?<=true )\s*\d+$|\b\d+ms\b", re.MULTILINE), "<ms>"),
)
_SAMPLED: Final = {
    "statsAll": r"(?: +<number>)? *\d+ +(?:\d+|NO_CONSUMER)$",
    "consumerProgress": r"\d+ +(?=\d+$)",
    "clusterList": r"\b\d+(?=-\d+\(\d\.\dw,)|\d+ +\d+ +\d+ +\d+$",
    "clusterRT": r"(?<=\|)\d+$",
    "wipeWritePerm": r"(?<=OK, )\d+$",
    "addWritePerm": r"(?<=OK, )\d+$",
}
_CHOSEN_QUEUE: Final = frozenset({"sendMessage", "checkMsgSendRT"})
_ONLY_APACHES: Final = (
    "%RETRY%TOOLS_CONSUMER", "%RETRY%AdmReads", "%RETRY%__MONITOR_CONSUMER", "AdmStatic", "broker-z",
)  # fmt: skip
"""Topics left by consumers of Apache's tool, and topics of lines that ours refuses."""
_RETRY_ROW: Final = f"%RETRY%{GROUP} "
"""Beginning of a row about the retry topic. The consumer gets its queue at a rebalance, early or late."""


def erased(text: str, places: Mapping[str, str]) -> str:
    """Return a text without values that differ from server to server or from run to run."""
    for place, name in places.items():
        text = text.replace(place, f"<{name}>".ljust(len(place)) if re.fullmatch(r"[\d.:]+", place) else f"<{name}>")
    for pattern, name in _KEPT_WIDTH:
        text = pattern.sub(lambda found, name=name: name.ljust(len(found[0])), text)
    for pattern, name in _MEASURED:
        text = pattern.sub(name, text)
    # The padding of a measured value depends on its length.
    text = re.sub(r" *(<(?:number|client|ms|offset|body|id)>) *", r" \1 ", text)
    return "\n".join(row.rstrip() for row in text.splitlines()).strip("\n")


def comparable(line: Line, printed: str, places: Mapping[str, str]) -> str:
    """Return the comparable part of an answer."""
    text = erased(printed, places)
    if line.command in KEYS_ONLY:
        keys = {re.split(r"[ :=]", row.removeprefix("<broker>").strip())[0] for row in text.splitlines()}
        return "\n".join(sorted(keys - {""}))
    # Apache's broker lists a topic as a group of its own (docs/spec/broker.md, trap 15).
    text = re.sub(rf"MessageTrack \[consumerGroup={TOPIC}, .*?(?:\)\]|null\])", "", text, flags=re.DOTALL)
    text = re.sub(rf"^(?:DefaultCluster +)?{TOPIC} +{TOPIC}\b.*\n?", "", text, flags=re.MULTILINE)
    if line.command == "statsAll" and "--activeTopic" in line.rest:
        # The active topics depend on the time of a broker's samples.
        return text.partition("\n")[0]
    if line.command in _SAMPLED:
        text = re.sub(_SAMPLED[line.command], "<sampled>", text, flags=re.MULTILINE)
    if line.command == "checkMsgSendRT":
        # A send on a busy machine may be late, and the tool chooses random queues.
        return re.sub(r"^(broker-a )?.*(true|false).*$", "<send>", text, flags=re.MULTILINE)
    if line.command == "sendMsgStatus" and "broker-z" in line.rest:
        # Apache's tool chooses a random queue.
        text = re.sub(r"queueId=\d|queueOffset=\d+", "<queue>", text)
    if line.command in _CHOSEN_QUEUE and not re.search(r"(-i|--qid) \d", line.rest):
        text = re.sub(r"(?<=broker-a {26})\d   ", "<queue>", text)
    text = re.sub(r"\{([^{}]*=[^{}]*)\}", lambda found: "{" + ", ".join(sorted(found[1].split(", "))) + "}", text)
    if line.command in UNORDERED:
        rows = sorted(row.rstrip(",") for row in text.splitlines() if row)
        text = "\n".join(row for row in rows if not row.startswith((*_ONLY_APACHES, _RETRY_ROW)))
    return text


def same(own: Outcome, apaches: Outcome, command: str) -> bool:
    """Whether our tool's outcome equals Apache's; for errors only the codes are compared, where both have one.

    Our exit codes are more detailed: 0 for an answer, 1 for an error of a server, 2 for a wrong command line, where
    Apache's tool ends with 0 after most errors.
    """
    if apaches.kind == DONE:
        if command in KEYS_ONLY and own.kind == DONE:
            return set(apaches.text.split()) <= set(own.text.split())
        return own.kind == DONE and own.exit_code == 0 and own.text == apaches.text
    if apaches.kind == USAGE:
        return own.exit_code == 2
    # Ours refuses a wrong value before any request, and then has no code.
    return own.exit_code in (1, 2) and (not own.code or not apaches.code or own.code == apaches.code)
