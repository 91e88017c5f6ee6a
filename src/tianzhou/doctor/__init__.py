"""Diagnosis of a cluster: what is ill, by which evidence, and what to do about it (docs/adr/0019).

`looks` read the cluster and this machine, `illnesses` decide over what was read, `diagnose` puts them together.
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
