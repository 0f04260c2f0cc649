"""What ended calls leave behind is collected, and the memory given back to the system, once no call is left.

A call's objects know each other, so that they wait for the garbage collector; its last generation is seldom looked at.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from voice_agent.engine.heap import QUIET_S, give_back

if TYPE_CHECKING:
    from voice_agent.media.calls import Calls


def collect_and_give_back() -> bool:
    """A full collection, for which the interpreter stands still for a moment; then `give_back`."""
    gc.collect()
    return give_back()


async def give_back_when_idle(calls: Calls, give: Callable[[], bool] = collect_and_give_back) -> None:
    """Until cancelled: each time that the last call has been gone for `QUIET_S`, call `give` in a thread."""
    while True:
        await calls.busy()
        await calls.idle()
        await asyncio.sleep(QUIET_S)
        if not calls.active:
            await asyncio.to_thread(give)
