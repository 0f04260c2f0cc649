"""OpenAI's Python client, unmodified, over a WebSocket: plays a recorded order and runs the ordering tools itself.

`python -m demos.openai_clients.order [recording] [address of the server]`
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import openai
import soundfile
import soxr

from demos.ordering.agent import agent

RATE = 24_000
"""Rate of PCM16 on the wire, in Hz."""

PIECE = RATE // 50
"""Samples of 20 ms."""


async def speak(call: Any, recording: Path) -> None:
    """Send the recording in real time, and silence after it, as a microphone does. It never returns."""
    pcm, rate = soundfile.read(recording, dtype="float32", always_2d=True)
    mono = soxr.resample(pcm.mean(axis=1), rate, RATE)
    spoken = (mono * 32767).astype("<i2").tobytes()
    at, due = 0, asyncio.get_running_loop().time()
    while True:
        piece = spoken[at : at + 2 * PIECE].ljust(2 * PIECE, b"\0")
        await call.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
        at += 2 * PIECE
        due += PIECE / RATE
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))


async def order(recording: Path, server: str, key: str) -> dict[str, Any]:
    """Place one call; gives the cart when the agent has answered."""
    mine = agent.open_call("openai", "zh")
    client = openai.AsyncOpenAI(api_key=key, base_url=f"{server}/v1")
    tools = [{"type": "function", "name": name, **schema} for name, schema in agent.schemas().items()]
    async with client.realtime.connect(model="tea-omni") as call:
        await call.session.update(session={"type": "realtime", "tools": tools})
        speaking = asyncio.create_task(speak(call, recording))
        spoken = 0
        try:
            async for event in call:
                if event.type == "error":
                    raise SystemExit(f"error: {event.error.message}")
                if event.type == "conversation.item.input_audio_transcription.completed":
                    print("caller:", event.transcript)
                elif event.type == "response.output_audio.delta":
                    spoken += len(base64.b64decode(event.delta)) // 2
                elif event.type == "response.output_audio_transcript.done":
                    print("agent:", event.transcript)
                elif event.type == "response.done":
                    calls = [item for item in event.response.output or [] if item.type == "function_call"]
                    for item in calls:
                        result = await agent.run_tool(mine, item.name, json.loads(item.arguments))
                        print("tool:", item.name, item.arguments)
                        output = json.dumps(result, ensure_ascii=False)
                        answer = {"type": "function_call_output", "call_id": item.call_id, "output": output}
                        await call.conversation.item.create(item=answer)
                    if calls:
                        await call.response.create()
                    elif event.response.status == "completed":
                        break
        finally:
            speaking.cancel()
    await client.close()
    print(f"heard {spoken / RATE:.1f} s of the agent's voice")
    cart: dict[str, Any] = mine.state.view()
    return cart


if __name__ == "__main__":
    recording = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "ordering" / "order.wav"
    server = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8080"
    print(json.dumps(asyncio.run(order(recording, server, key="none")), ensure_ascii=False, indent=1))
