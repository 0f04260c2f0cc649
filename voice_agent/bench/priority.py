"""The scheduling priority of a program that measures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def urgent() -> Iterator[bool]:
    """Run before other programs while open, so that a busy machine does not make the one who measures late.

    Gives whether that was allowed: it takes Linux, and root or CAP_SYS_NICE.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, PermissionError):
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
