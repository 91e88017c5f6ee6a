"""The log line of a slave that has stopped copying and waits for an operator. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_COUNTED: Final = 1_000_000
"""Maximum number of messages to count; the line says "more than" for a larger number."""


@dataclass(frozen=True, slots=True)
class Halt:
    """A slave whose log ends with records that its master does not have.

    Attributes:
        master: the master's HA address, `host:port`.
        at: log offset up to which both logs agree.
        master_at: log offset at which the master's log was last compared: it differs there, or ends there.
        end: log offset where the slave's log ends.
        messages: whole records of the slave's log behind `at`.
        config_file: the slave's configuration file.
        store_folder: root of the slave's store.
    """

    master: str
    at: int
    master_at: int
    end: int
    messages: int
    config_file: str
    store_folder: str


def halt_reason(halt: Halt) -> str:
    """Return the reason in one sentence, for `status` and `doctor`."""
    return (
        f"durability=zero-loss: this slave's log ends at {halt.end}, and the log of its master {halt.master} differs "
        f"or ends at {halt.master_at}; {halt.end - halt.at} bytes with {_counted(halt)} from {halt.at} on are only here"
    )


def halt_line(halt: Halt) -> str:
    """Return the log line: the reason, what this slave does, and the commands of an operator's two choices."""
    return (
        f"{halt_reason(halt)}. The slave copies nothing, keeps its log and serves reads. Keep these messages: stop the "
        f"master and this broker, then make this slave the master: {promote_command(halt.config_file)}. Or give them "
        f"up: stop this broker, then cut its log: {cut_command(halt.config_file)}; copies of them go to "
        f"{halt.store_folder}/cut first"
    )


def promote_command(config_file: str) -> str:
    """Return the command that starts a slave as the master.

    Args:
        config_file: the slave's configuration file.
    """
    return f"tianzhou broker -c {config_file or 'FILE'} --promote"


def cut_command(config_file: str) -> str:
    """Return the command that starts a slave with permission to cut its log once.

    Args:
        config_file: the slave's configuration file.
    """
    return f"tianzhou broker -c {config_file or 'FILE'} --allow-cut"


def _counted(halt: Halt) -> str:
    if halt.messages > MAX_COUNTED:
        return f"more than {MAX_COUNTED} messages"
    return "1 message" if halt.messages == 1 else f"{halt.messages} messages"
