"""The recordings of `bench-standard` by the rules of Full-Duplex-Bench: take-over rates and mean latencies.

Needs the pieces and their recordings in `bench-out`; places no calls.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tests.evidence._calls import ROOT, pieces
from tests.evidence.bench_standard import PIECES
from voice_agent.bench.full_duplex_bench import Trial, scores
from voice_agent.bench.full_duplex_bench import trials as trials_of
from voice_agent.bench.quality import whisper
from voice_agent.bench.recording import Recording

TRIALS = 1


async def run(seed: int, trials: int) -> dict[str, Any]:
    stored = [piece for name in PIECES for piece in pieces(f"bench-standard-{name}")]
    paths = [
        ROOT / "bench-out" / f"bench-standard-{call['piece']}-{piece['seed']}" / call["recording"]
        for piece in stored
        for call in piece["each"]
    ]
    if not paths:
        raise FileNotFoundError("expected pieces in evidence/, such as bench-standard-orders-1.json, found none")
    transcribe = whisper()
    found: list[Trial] = []
    for path in paths:
        recording = Recording.load(path)
        if not recording.failed:
            found += trials_of(recording, transcribe)
    return {
        "calls": len(paths),
        "scores": {task: asdict(score) for task, score in scores(found).items()},
        "each": [asdict(trial) for trial in found],
    }
