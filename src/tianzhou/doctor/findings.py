"""Findings: an illness that somebody has, with evidence and fix; and reports of them. Pure."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import Any, Final, TypeAlias

Evidence: TypeAlias = Mapping[str, Any]
"""Names of values that were read, to what they were; for JSON as they are."""


class Severity(enum.StrEnum):
    """How bad a finding is.

    `error`: something does not work, or messages are lost. `warning`: it will, or it may. `note`: good to know.
    """

    error = "error"
    warning = "warning"
    note = "note"


_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class Illness:
    """What may be found: one entry of the registry.

    Attributes:
        name: stable id, `group-without-members`.
        severity: of its findings, unless it is `graded`.
        means: the sentence, with the names of its places in braces.
        fix: what to do, likewise.
    """

    name: str
    severity: Severity
    means: str
    fix: str

    def graded(self, severity: Severity) -> Illness:
        """The same, with another severity."""
        return replace(self, severity=severity)

    def found(self, subject: str, evidence: Evidence | None = None, /, **words: object) -> Finding:
        """A finding of it.

        Args:
            subject: who has it, `group billing`.
            evidence: what was read that shows it.
            words: what stands in the places of its sentences.
        """
        message, fix = filled(self.means, self.fix, words)
        return Finding(self.name, self.severity, subject, _sentence(message), dict(evidence or {}), fix, words)

    @property
    def places(self) -> set[str]:
        """Names of the places in its sentences."""
        return {name for text in (self.means, self.fix) for _, name, _, _ in Formatter().parse(text) if name}


_TYPED: Final = frozenset({"address", "broker", "client_id", "group", "path", "retry_topic", "topic"})
"""Places of strangers' names in commands."""


def filled(means: str, fix: str, words: Mapping[str, object]) -> tuple[str, str]:
    """The sentence of an illness and its fix, with words in their places; in the fix as a shell takes them."""
    return means.format_map(words), fix.format_map({name: _typed(name, word) for name, word in words.items()})


def _typed(name: str, word: object) -> object:
    """A name as a shell takes it: whoever made a topic `a|b` shall not have others run `b`."""
    return shlex.quote(word) if name in _TYPED and isinstance(word, str) else word


def _sentence(text: str) -> str:
    """A sentence that begins with a noun of ours has a capital; one that begins with a stranger's name stays."""
    return text[0].upper() + text[1:] if text.startswith(("broker ", "name server ")) else text


@dataclass(frozen=True, slots=True)
class Finding:
    """An illness that somebody has.

    Attributes:
        name: of the illness.
        severity: how bad it is.
        subject: who has it.
        message: what that means, in one sentence.
        evidence: what was read that shows it.
        fix: what to do, with the command to type where there is one.
        words: what stands in the places of its sentences, for other languages.
    """

    name: str
    severity: Severity
    subject: str
    message: str
    evidence: Evidence
    fix: str
    words: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name,
            "severity": str(self.severity),
            "subject": self.subject,
            "message": self.message,
            "evidence": dict(self.evidence),
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question that got no answer.

    Attributes:
        server: who was asked.
        question: for what.
        why: the error.
    """

    server: str
    question: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """Outcome of a diagnosis.

    Attributes:
        subject: what was looked at, `group billing`.
        findings: the worst first.
        looked_at: how many of what were looked at: `{"brokers": 3}`.
        unanswered: what could not be read, so that a finding may be missing.
        could_look: whether anything was read at all.
    """

    subject: str
    findings: Sequence[Finding] = ()
    looked_at: Mapping[str, int] = field(default_factory=dict)
    unanswered: Sequence[Unanswered] = ()
    could_look: bool = True

    @property
    def healthy(self) -> bool:
        """Whether no finding is an error."""
        return self.could_look and all(finding.severity is not Severity.error for finding in self.findings)

    @property
    def names(self) -> list[str]:
        """Names of the illnesses that were found, the worst first, each once."""
        return list(dict.fromkeys(finding.name for finding in self.findings))

    def counts(self) -> dict[str, int]:
        """How many findings of each severity."""
        return {str(one): sum(finding.severity is one for finding in self.findings) for one in Severity}

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "subject": self.subject,
            "healthy": self.healthy,
            "could_look": self.could_look,
            "looked_at": dict(self.looked_at),
            "counts": self.counts(),
            "findings": [finding.as_json() for finding in self.findings],
            "unanswered": [{"server": one.server, "question": one.question, "why": one.why} for one in self.unanswered],
        }


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by severity, then subject; the same one twice only once."""
    once = {(finding.name, finding.subject, finding.message): finding for finding in findings}
    return sorted(once.values(), key=lambda finding: (_ORDER.index(finding.severity), finding.subject, finding.name))
