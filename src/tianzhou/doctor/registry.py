"""Registry of all the doctor's findings, by subject. docs/reference/findings.md is generated from it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tianzhou.doctor.findings import Illness
from tianzhou.doctor.illnesses import access, broker, connect, copies, group, host, member, send, spark, topic

BY_SUBJECT: Final[Mapping[str, tuple[Illness, ...]]] = {
    "group": group.ILLNESSES + member.ILLNESSES,
    "topic": topic.ILLNESSES,
    "broker": broker.ILLNESSES + copies.ILLNESSES,
    "send": send.ILLNESSES,
    "connect": connect.ILLNESSES,
    "spark": spark.ILLNESSES,
    "host": host.ILLNESSES,
    "access": access.ILLNESSES,
}
ILLNESSES: Final[Mapping[str, Illness]] = {one.name: one for some in BY_SUBJECT.values() for one in some}
