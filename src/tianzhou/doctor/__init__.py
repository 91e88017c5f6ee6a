"""Diagnosis of a cluster: its faults, the evidence for each fault, and the remedy (docs/adr/0019).

`looks` read the cluster and this machine. `illnesses` decide which observations are faults. `diagnose` runs both and
returns the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tianzhou.doctor.diagnosis import Subject, diagnose
    from tianzhou.doctor.findings import Finding, Illness, Report, Severity

__all__ = ["Finding", "Illness", "Report", "Severity", "Subject", "diagnose"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {"diagnosis": "Subject diagnose", "findings": "Finding Illness Report Severity"},
)
