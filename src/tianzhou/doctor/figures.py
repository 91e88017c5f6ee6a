"""Metric families of a report, for a monitor that runs the doctor every few minutes and exports to Prometheus. Pure."""

from __future__ import annotations

from collections import Counter

from tianzhou.doctor.findings import Report
from tianzhou.metrics.families import Family, Kind, gauge


def families(report: Report, now_s: float) -> list[Family]:
    """Return the metric families of a report.

    Args:
        report: the doctor's report.
        now_s: time of the diagnosis, seconds since the epoch.
    """
    counts = Counter((str(finding.severity), finding.name) for finding in report.findings)
    found = Family(
        "tianzhou_doctor_findings", Kind.GAUGE, "What the doctor has found, by illness.", ("severity", "name"),
        samples=[(key, count) for key, count in sorted(counts.items())],
    )  # fmt: skip
    return [
        found,
        gauge("tianzhou_doctor_could_look", "Whether a name server answered the doctor.", int(report.could_look)),
        gauge("tianzhou_doctor_unanswered", "Questions that got no answer.", len(report.unanswered)),
        gauge("tianzhou_doctor_looked_timestamp_seconds", "When the doctor looked last.", now_s),
    ]
