"""Four calls at once whose turns end 500 ms apart: all answered, each with its own cart; V2V beside one call's."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.evidence.tools import ORDER, loop_lag, quantiles
from voice_agent.calling import CallReport, own_server, place_call
from voice_agent.evaluate import CartLine, lines_of, same

TRIALS = 4
TURNS = 5
CALLS = 4
APART_S = 0.5
LINE = CartLine(drink="pearl_milk_tea", quantity=1, size="medium", ice="less_ice", sugar="full_sugar", toppings=())


async def run(seed: int, trials: int) -> dict[str, Any]:
    """`trials`: rounds of four calls."""
    async with own_server() as url:
        alone = [await place_call(url, [ORDER] * TURNS) for _ in range(trials)]

        async def late(number: int) -> CallReport:
            await asyncio.sleep(number * APART_S)
            return await place_call(url, [ORDER] * TURNS)

        together: list[CallReport] = []
        for _ in range(trials):
            together += await asyncio.gather(*(late(number) for number in range(CALLS)))
        lag = await loop_lag(url)
    one, four = (quantiles([t.v2v_ms for r in reports for t in r.turns if t.v2v_ms]) for reports in (alone, together))
    wanted = [LINE] * TURNS
    right = sum(same(lines_of(report.cart), wanted) for report in together)
    return {
        "one_call_v2v_ms": one,
        "four_calls_v2v_ms": four,
        "loop_lag": lag,
        "ratio_p95": round(four["p95"] / one["p95"], 2),
        "carts_right": f"{right}/{len(together)}",
        "answered": f"{sum(t.answered for r in together for t in r.turns)}/{len(together) * TURNS}",
        "passed": right == len(together) and four["p95"] <= 2 * one["p95"],
        "each": [
            {"transcripts": [t.transcript for t in r.turns], "v2v_ms": [t.v2v_ms for t in r.turns]} for r in together
        ],
    }
