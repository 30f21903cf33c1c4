"""Is this machine fit for distributed training? `doctor()` says so, line by line."""

from __future__ import annotations

from .command import main
from .examine import doctor, examine
from .finding import Finding
from .machine import Machine
from .recorded import recorded, recorded_names
from .report import Report

__all__ = ["Finding", "Machine", "Report", "doctor", "examine", "main", "recorded", "recorded_names"]
