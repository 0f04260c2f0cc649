"""A caller in a page: a microphone that says recordings when a test tells it to, and an ear that records the agent."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import numpy.typing as npt
from playwright.sync_api import Page

EAR_RATE = 16_000

# Every microphone that the page asks for is this one: silent but for what `mouth.say` plays into it.
MOUTH = """
  window.mouth = {
    async say(base64) {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const source = mouth.context.createBufferSource();
      source.buffer = await mouth.context.decodeAudioData(bytes.buffer);
      source.connect(mouth.destination);
      source.start();
      await new Promise((resolve) => source.addEventListener("ended", resolve));
    },
  };
  navigator.mediaDevices.getUserMedia = async () => {
    mouth.context ??= new AudioContext();
    mouth.destination ??= mouth.context.createMediaStreamDestination();
    return mouth.destination.stream;
  };
"""

EAR = """async (rate) => {
  const context = new AudioContext({ sampleRate: rate });
  const processor = `registerProcessor("ear", class extends AudioWorkletProcessor {
    process([[pcm]]) { if (pcm) this.port.postMessage(pcm.slice()); return true; }
  })`;
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([processor], { type: "text/javascript" })));
  const node = new AudioWorkletNode(context, "ear");
  window.heard = [];
  window.loudest = 0;
  node.port.onmessage = ({ data }) => {
    window.heard.push(data);
    for (const sample of data) window.loudest = Math.max(window.loudest, Math.abs(sample));
  };
  context.createMediaStreamSource(document.getElementById("voice").srcObject).connect(node);
}"""

HEARD = """async () => {
  const pcm = new Int16Array(window.heard.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of window.heard) for (const sample of piece) pcm[at++] = Math.max(-1, Math.min(1, sample)) * 32767;
  const url = await new Promise((resolve) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.readAsDataURL(new Blob([pcm]));
  });
  return url.slice(url.indexOf(",") + 1);
}"""


def give_mouth(page: Page) -> None:
    """Before the page is opened."""
    page.add_init_script(MOUTH)


def say(page: Page, recording: Path, *, wait: bool = True) -> None:
    """Say a sound file into the page's microphone; returns when it has been said."""
    sound = base64.b64encode(recording.read_bytes()).decode()
    page.evaluate("([sound, wait]) => { const said = mouth.say(sound); return wait ? said : null; }", [sound, wait])


def listen(page: Page) -> None:
    """From here on record what the page's element #voice is given to play, and in `window.loudest` its peak."""
    page.evaluate(EAR, EAR_RATE)


def heard(page: Page) -> npt.NDArray[np.int16]:
    """What was recorded so far: int16[T] @ 16 kHz."""
    return np.frombuffer(base64.b64decode(page.evaluate(HEARD)), "<i2")
