"""Known failures of distributed PyTorch: the catalogue, and `explain()`, which finds them in a run or a log.

`table()` shows them all, `reproduce()` makes one happen.
"""

from __future__ import annotations

from .catalogue import catalogue
from .explain import explain
from .explanation import Evidence, Explanation
from .fault import Fault
from .reproduce import reproduce
from .table import Table, table

__all__ = ["Evidence", "Explanation", "Fault", "Table", "catalogue", "explain", "reproduce", "table"]
