"""A server gives freed memory back to the system once no call is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from voice_agent.engine.heap import QUIET_S, give_back

if TYPE_CHECKING:
    from voice_agent.media.calls import Calls


async def give_back_when_idle(calls: Calls, give: Callable[[], bool] = give_back) -> None:
    """Until cancelled: each time that the last call has been gone for `QUIET_S`, call `give` in a thread."""
    while True:
        await calls.busy()
        await calls.idle()
        await asyncio.sleep(QUIET_S)
        if not calls.active:
            await asyncio.to_thread(give)
