"""The stop button during a run: counted, so that it lands where a run can be stopped cleanly and nowhere else."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """While it is entered, SIGINT raises nothing but adds to `count`. (Only the main thread ever gets a SIGINT.)"""

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._add)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _add(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
