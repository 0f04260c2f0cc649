"""What all calls of a process share: the model's stages, the recogniser, the voice detector; and how a server runs."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
from threadpoolctl import threadpool_limits

from voice_agent.agent import Agent
from voice_agent.asr import AsrPool, Recognizer
from voice_agent.assets import asset
from voice_agent.config import Config, load_config
from voice_agent.ears import Ears
from voice_agent.engine.placement import place_stages
from voice_agent.engine.protocols import KnowsTools, Language
from voice_agent.engine.reply import Engine
from voice_agent.engine.stages import Pcm
from voice_agent.media.aiortc_patches import lan_addresses
from voice_agent.media.echo import LIKELY_ECHO, EchoCanceller
from voice_agent.media.reference import Reference
from voice_agent.media.speaker import Speaker
from voice_agent.models import describe, load_parts, usual_places
from voice_agent.server import Server, ServerConfig, create_app
from voice_agent.session import Session
from voice_agent.tls import Certificate, default_folder, ensure_certificate, qr_code
from voice_agent.vad import SileroModel, StreamingVad, VadEvent

log = logging.getLogger(__name__)

# How long another thread may hold the interpreter while the event loop wants it; Python's own 5 ms would be felt.
SWITCH_INTERVAL_S = 0.0005


def check_agent(agent: Agent, model: KnowsTools) -> None:
    """Raises ValueError, with a sentence, for tools that the model does not know."""
    model.check(agent.schemas())


class Runtime:
    """Shared, immutable but for its workers. Make it with `open_runtime`."""

    def __init__(
        self,
        agent: Agent,
        config: Config,
        engine: Engine,
        asr: AsrPool,
        silero: SileroModel,
    ) -> None:
        self.agent, self.config, self.engine, self.asr = agent, config, engine, asr
        self.schemas = agent.schemas()
        self._silero = silero
        self._ears_worker = ThreadPoolExecutor(1, thread_name_prefix="ears")
        self._notices = {language: _read_notice(language) for language in ("zh", "en")}

    def open_ears(self, reference: Reference) -> Ears:
        """What listens to a call, with a state of its own; `reference`: what the call's speaker has sent."""
        canceller = EchoCanceller(reference) if self.config.echo_cancellation else None
        return Ears(StreamingVad(self.config.vad, self._silero), canceller, LIKELY_ECHO)

    async def listen(
        self, ears: Ears, pcm: npt.NDArray[np.int16], now_s: float
    ) -> tuple[npt.NDArray[np.int16], list[VadEvent]]:
        """`Ears.push`, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._ears_worker, ears.push, pcm, now_s)

    @property
    def prompt(self) -> dict[str, str]:
        """Words that the recogniser should expect, by language."""
        return {str(language): words for language, words in self.agent.vocabulary.items()}

    def notice(self, language: Language) -> Pcm:
        """The spoken notice that a stage failed: float32 @ 24 kHz."""
        return self._notices[language]

    def view(self) -> dict[str, Any]:
        """Figures of all stages, for the stats route."""
        return {"engine": self.engine.view()}

    def close(self) -> None:
        self._ears_worker.shutdown(wait=True)


def _read_notice(language: str) -> Pcm:
    pcm, rate = soundfile.read(Path(__file__).parent / "notices" / f"stage_failed_{language}.flac", dtype="float32")
    assert rate == 24_000, f"expected a notice at 24000 Hz, got {rate}"
    notice: Pcm = pcm
    return notice


@asynccontextmanager
async def open_runtime(agent: Agent, config: Config) -> AsyncIterator[Runtime]:
    """Load the weights, start the workers and warm them up; on leaving, end them all.

    Raises ValueError for tools that the model does not know and a device that is not there, WeightsError for a weight
    that is not what it should be, StageDied for a stage's process that does not come up.
    """
    import torch

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    torch.set_num_threads(config.engine.threads)
    # Numpy's products are small here, and threads that wait for more of them take a core from the models.
    threadpool_limits(limits=1, user_api="blas")
    model = await asyncio.to_thread(describe, agent.model)
    check_agent(agent, model)
    recognizer = await asyncio.to_thread(Recognizer, config.recognizer)
    silero = await asyncio.to_thread(SileroModel)
    async with AsyncExitStack() as stack:
        engine = await asyncio.to_thread(_open_engine, agent.model, model, config)
        stack.push_async_callback(asyncio.to_thread, engine.close)
        runtime = Runtime(agent, config, engine, AsrPool(recognizer, config.asr), silero)
        stack.push_async_callback(asyncio.to_thread, runtime.close)
        stack.push_async_callback(runtime.asr.aclose)
        yield runtime


def _open_engine(name: str, model: KnowsTools, config: Config) -> Engine:
    settings = config.engine
    load = partial(load_parts, name, settings.slots, config.qwen)
    places = usual_places(name) if settings.placement is None else settings.placement
    stages = place_stages(places, load, ahead_ms=settings.ahead_ms, threads=settings.threads)
    return Engine(model, quiet_dbfs=settings.quiet_dbfs, stages=stages)


def run_server(agent: Agent, *, host: str, port: int, config_path: Path | str | None = None, tls: bool = False) -> None:
    """Serve until SIGINT or SIGTERM; prints the address once calls can be placed.

    `tls`: https, with the configured certificate or, without one, with one made for this machine's addresses; the
    address is also drawn as a QR code, for a phone in the same network.
    """
    config = load_config(config_path)
    server_config = replace(config.server, host=host, port=port)
    made: Certificate | None = None
    if tls and server_config.certificate is None:
        made = ensure_certificate(default_folder(), [reachable_at(host)])
        server_config = replace(server_config, certificate=str(made.certificate), key=str(made.key))

    def tell(address: str) -> None:
        print(f"{agent.name} ({agent.model}) answers calls at {address}  (Ctrl-C ends it)", flush=True)
        if tls:
            print(qr_code(address), flush=True)
        if made is not None:
            print(
                "The certificate is this machine's own, so the browser warns once: go on only if it shows\n"
                f"SHA-256 {made.fingerprint}",
                flush=True,
            )

    asyncio.run(serve_agent(agent, config, server_config, tell))


def reachable_at(host: str) -> str:
    """The address to give to others: `host`, or this machine's first in its network where `host` means all of them."""
    if host in ("0.0.0.0", "::"):
        return next(iter(lan_addresses()), "127.0.0.1")
    return "127.0.0.1" if host == "localhost" else host


async def serve_agent(
    agent: Agent, config: Config, server_config: ServerConfig, on_ready: Callable[[str], None]
) -> None:
    """Serve until stopped. `on_ready(address)` is called once, when the server listens."""
    async with open_runtime(agent, config) as runtime:
        # What is loaded now stays. Left out of collections, those are short, and come often enough to free ended calls.
        gc.collect()
        gc.freeze()

        def make_session(call_id: str, speaker: Speaker, send: Callable[[dict[str, Any]], None]) -> Session:
            return Session(call_id, runtime, speaker, send)

        info = {
            "name": agent.name,
            "model": agent.model,
            "languages": ["zh", "en"],
            "tools": list(agent.toolbox),
            "info": dict(agent.info),
        }
        app = create_app(server_config, make_session, info, asset("web"), stats=runtime.view)
        server = Server(app, server_config)
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(_tell_address(server, server_config, on_ready))
            try:
                await server.run_until_stopped()
            finally:
                telling.cancel()


async def _tell_address(server: Server, config: ServerConfig, on_ready: Callable[[str], None]) -> None:
    await server.listening.wait()
    port = server.servers[0].sockets[0].getsockname()[1]
    scheme = "http" if config.certificate is None else "https"
    on_ready(f"{scheme}://{reachable_at(config.host)}:{port}")
