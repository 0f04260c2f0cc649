"""A call hands its recordings to a model that listens, and words alone to one that reads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.call_fakes import Bench, in_call, run
from tests.fakes import FakeModel, FakeThinker


@pytest.mark.parametrize("listen", [True, False])
def test_recordings_reach_the_thinker_and_the_dialogue_where_it_listens(listen: bool) -> None:
    thinker = FakeThinker()

    async def work() -> None:
        async with in_call(Bench(FakeModel(thinker), ["hello", "again"], qwen={"listen": listen})) as bench:
            await bench.say(800)
            await bench.hush()
            await bench.until(lambda: thinker.requests)
            await bench.until(lambda: bench.speaker.queued_ms >= 400)
            await bench.play(25)
            await bench.until(lambda: "output_audio_buffer.stopped" in bench.kinds())
            await bench.say(600)
            await bench.hush()
            await bench.until(lambda: len(thinker.requests) == 2)
            first, reply, second = thinker.requests[1].messages
            assert [first.text, reply.text, second.text] == ["hello", "one two three four ", "again"]
            assert reply.audio is None
            if not listen:
                assert first.audio is None
                assert second.audio is None
                return
            assert first.audio is not None
            assert second.audio is not None
            assert first.audio is not second.audio
            voiced_ms = [
                np.count_nonzero(message.audio) // 16 for message in (first, second) if message.audio is not None
            ]
            assert voiced_ms == [800, 600]
            assert np.array_equal(first.audio, thinker.requests[0].messages[-1].audio)

    run(work)
