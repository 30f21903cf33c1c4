"""Exercises: `check`, and one file of checks a lesson."""

from __future__ import annotations

from .check import check
from .verdict import ExerciseNotPassed, Verdict

__all__ = ["ExerciseNotPassed", "Verdict", "check"]
