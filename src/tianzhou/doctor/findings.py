"""Findings: a fault of one subject, with evidence and remedy; and reports of findings. Pure."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import Any, Final, TypeAlias

Evidence: TypeAlias = Mapping[str, Any]
"""Values that were read, by name. They are written to JSON unchanged."""


class Severity(enum.StrEnum):
    """Severity of a finding.

    `error`: a function fails, or messages are lost. `warning`: a function will fail or may fail. `note`: for
    information.
    """

    error = "error"
    warning = "warning"
    note = "note"


_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class Illness:
    """A kind of fault: one entry of the registry.

    Attributes:
        name: stable id, such as `group-without-members`.
        severity: severity of its findings, unless `graded` changes it.
        means: the sentence that describes the fault; its placeholders are names in braces.
        fix: the remedy, with placeholders in braces.
    """

    name: str
    severity: Severity
    means: str
    fix: str

    def graded(self, severity: Severity) -> Illness:
        """Return a copy with another severity."""
        return replace(self, severity=severity)

    def found(self, subject: str, evidence: Evidence | None = None, /, **words: object) -> Finding:
        """Return a finding of this fault.

        Args:
            subject: the faulty part, such as `group billing`.
            evidence: the values that show the fault.
            words: values of the placeholders in `means` and `fix`.
        """
        message, fix = filled(self.means, self.fix, words)
        return Finding(self.name, self.severity, subject, _sentence(message), dict(evidence or {}), fix, words)

    @property
    def places(self) -> set[str]:
        """Names of the placeholders in `means` and `fix`."""
        return {name for text in (self.means, self.fix) for _, name, _, _ in Formatter().parse(text) if name}


_TYPED: Final = frozenset({"address", "broker", "client_id", "group", "path", "retry_topic", "topic"})
"""Placeholders in commands whose values are names chosen by users."""


def filled(means: str, fix: str, words: Mapping[str, object]) -> tuple[str, str]:
    """Return an illness' sentence and fix with their placeholders filled. The fix's values are quoted for a shell."""
    return means.format_map(words), fix.format_map({name: _typed(name, word) for name, word in words.items()})


def _typed(name: str, word: object) -> object:
    """Return a name quoted for a shell, so that a topic named `a|b` does not run the command `b`."""
    return shlex.quote(word) if name in _TYPED and isinstance(word, str) else word


def _sentence(text: str) -> str:
    """Return a sentence with a capital first letter, unless it begins with a name that a user chose."""
    return text[0].upper() + text[1:] if text.startswith(("broker ", "name server ")) else text


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of one subject.

    Attributes:
        name: name of the illness.
        severity: its severity.
        subject: the faulty part, such as `group billing`.
        message: the fault, in one sentence.
        evidence: the values that show the fault.
        fix: the remedy, with the command to type if there is one.
        words: values of the placeholders, from which translations are filled.
    """

    name: str
    severity: Severity
    subject: str
    message: str
    evidence: Evidence
    fix: str
    words: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
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
    """A request that got no answer.

    Attributes:
        server: address of the server.
        question: what was requested, in words.
        why: the error's text.
    """

    server: str
    question: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a diagnosis.

    Attributes:
        subject: the diagnosed subject, such as `group billing`.
        findings: all findings, the most severe first.
        looked_at: number of diagnosed objects by kind, such as `{"brokers": 3}`.
        unanswered: requests without an answer, because of which findings may be missing.
        could_look: whether any server answered.
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
        """Names of the illnesses that were found, the most severe first, without duplicates."""
        return list(dict.fromkeys(finding.name for finding in self.findings))

    def counts(self) -> dict[str, int]:
        """Return the number of findings of each severity."""
        return {str(one): sum(finding.severity is one for finding in self.findings) for one in Severity}

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
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
    """Return findings sorted by severity, then subject, without duplicates."""
    once = {(finding.name, finding.subject, finding.message): finding for finding in findings}
    return sorted(once.values(), key=lambda finding: (_ORDER.index(finding.severity), finding.subject, finding.name))
