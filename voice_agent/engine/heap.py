"""Memory that replies have freed goes back to the system once nothing is computed.

glibc keeps what was freed for the next request, in arenas a thread, and returns only what lies at their ends: after
200 calls about 90 of 800 MiB were such memory, in use by nothing (`mallinfo2`), and the process seemed to grow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

QUIET_S = 1.0
"""How long nothing may have been done: whoever comes next is not kept waiting for the allocator's locks."""


def give_back() -> bool:
    """Return freed memory to the system (malloc_trim(3)). False where the C library has no such function."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return False
    return bool(trim(0))


class WhenQuiet:
    """Calls `give` once each time that work has rested for `QUIET_S`. Times are in seconds on any one clock."""

    def __init__(self, give: Callable[[], object] = give_back) -> None:
        self._give = give
        self._done = 0
        self._since = 0.0
        self._given = True

    def saw(self, done: int, now_s: float) -> None:
        """So many units of work were done until now; call it several times a second."""
        if done != self._done:
            self._done, self._since, self._given = done, now_s, False
        elif not self._given and now_s - self._since >= QUIET_S:
            self._given = True
            self._give()
