"""Known failures of distributed PyTorch: the catalogue, and `explain()`, which finds them in a run or a log."""

from __future__ import annotations

from .catalogue import catalogue
from .explain import explain
from .explanation import Evidence, Explanation
from .fault import Fault

__all__ = ["Evidence", "Explanation", "Fault", "catalogue", "explain"]
