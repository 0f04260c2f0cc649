"""Memory that calls have freed goes back to the system once no call is left.

glibc keeps what was freed for the next request, in arenas a thread, and returns only what lies at their ends: after
200 calls about 90 of 800 MiB were such memory, in use by nothing (`mallinfo2`), and the process seemed to grow.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voice_agent.media.calls import Calls

QUIET_S = 1.0
"""How long no call may have been there: the next one of a busy server is not kept waiting for the allocator's locks."""


def give_back() -> bool:
    """Return freed memory to the system (malloc_trim(3)). False where the C library has no such function."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return False
    return bool(trim(0))


async def give_back_when_idle(calls: Calls, give: Callable[[], bool] = give_back) -> None:
    """Until cancelled: each time that the last call has been gone for `QUIET_S`, call `give` in a thread."""
    while True:
        await calls.busy()
        await calls.idle()
        await asyncio.sleep(QUIET_S)
        if not calls.active:
            await asyncio.to_thread(give)
