"""Other voice servers on this machine, each as its documentation builds one, to be measured beside this project's.

Their packages are the published ones, unchanged, in environments of their own. All get the same Whisper weights and a
recording that answers every turn, so that only turn-taking and media differ.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import soundfile
import soxr

from voice_agent.bench.scenario import LIBRARY
from voice_agent.weights import cache_folder, whisper

REPLY = LIBRARY / "sounds" / "reply-zh.flac"
REPLY_S = 3.4
"""Its first two phrases: as long as this server's reply to a short order."""

REPLY_RATE = 24_000
START_S = 120.0
INSTALL_S = 1800.0


@dataclass(frozen=True)
class Recipe:
    """How a peer is started. `packages`: what pip installs, pinned; `script`: in this folder; it prints its address."""

    name: str
    packages: tuple[str, ...]
    script: str


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("pipecat", ("pipecat-ai[webrtc,whisper,silero,runner]==1.14.0",), "pipecat_server.py"),
        Recipe("fastrtc", ("fastrtc[vad]==0.0.34", "faster-whisper==1.2.1"), "fastrtc_server.py"),
    )
}


def recipe_of(name: str) -> Recipe:
    """Raises ValueError for a peer that has no recipe."""
    try:
        return RECIPES[name]
    except KeyError:
        raise ValueError(f"expected a peer out of {', '.join(RECIPES)}, got {name!r}") from None


async def environment(recipe: Recipe) -> Path:
    """The Python of the peer's own environment, which is made the first time (minutes, from PyPI).

    Raises ConnectionError with pip's last words if it cannot be made.
    """
    mark = hashlib.sha256("\n".join(recipe.packages).encode()).hexdigest()[:12]
    home = cache_folder() / "peers" / f"{recipe.name}-{mark}"
    python, done = home / "bin" / "python", home / ".installed"
    if not await asyncio.to_thread(done.is_file):
        await asyncio.to_thread(home.parent.mkdir, parents=True, exist_ok=True)
        await _command(sys.executable, "-m", "venv", "--clear", str(home))
        await _command(str(python), "-m", "pip", "install", "-q", *recipe.packages)
        await asyncio.to_thread(done.touch)
    return python


async def _command(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(INSTALL_S):
            _, told = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ConnectionError(f"{' '.join(command)}: {told.decode(errors='replace').strip()[-300:]}")


@asynccontextmanager
async def serving(recipe: Recipe, out: Path, reply: Path = REPLY) -> AsyncIterator[str]:
    """A peer's server in a process of its own; gives its route, and ends it by its pid.

    `reply`: the sound file whose first `REPLY_S` answer; `out`: where the server's log and the reply as WAV are
    written. Raises ConnectionError if it does not come up.
    """
    python = await environment(recipe)
    weights = await asyncio.to_thread(whisper)
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    sound = out / "reply.wav"
    await asyncio.to_thread(_as_wav, reply, sound)
    script = Path(__file__).parent / recipe.script
    # Nothing may be fetched while calls run; every weight is at hand.
    settings = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "LOGURU_LEVEL": "INFO"}
    settings.pop("PYTHONPATH", None)
    with (out / "server.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(python), str(script), str(weights), str(sound), stdout=asyncio.subprocess.PIPE, stderr=log, env=settings
        )
        try:
            assert process.stdout is not None
            try:
                async with asyncio.timeout(START_S):
                    line = (await process.stdout.readline()).decode()
            except TimeoutError:
                line = ""
            if "http" not in line:
                raise ConnectionError(f"expected {recipe.name} to print its address; see {out / 'server.log'}")
            yield line.split()[-1]
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 10)
                except TimeoutError:
                    process.kill()
                    await process.wait()


def _as_wav(source: Path, target: Path) -> None:
    pcm, rate = soundfile.read(source, dtype="float32")
    pcm = pcm[: round(REPLY_S * rate)]
    soundfile.write(target, soxr.resample(pcm, rate, REPLY_RATE), REPLY_RATE, subtype="PCM_16")
