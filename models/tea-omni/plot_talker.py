"""Draw the talker's learning curves for the model card.

python models/tea-omni/plot_talker.py --run ~/.cache/tea-omni/talker --out models/tea-omni/card/talker.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("~/.cache/tea-omni/talker").expanduser())
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "card" / "talker.png")
    args = parser.parse_args()
    curve = json.loads((args.run / "curve.json").read_text())
    pronouncer = json.loads((args.run / "pronouncer.json").read_text())["curve"]
    figure, panels = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    for panel, part in zip(panels, ("mel", "duration"), strict=False):
        training = [(e["step"], e[f"train_{part}"]) for e in curve if f"train_{part}" in e]
        panel.plot(*zip(*training, strict=True), label="training", alpha=0.6)
        for language in ("zh", "en"):
            held_out = [(e["step"], e[f"{language}_{part}"]) for e in curve if f"{language}_{part}" in e]
            panel.plot(*zip(*held_out, strict=True), label=f"held out, {language}")
        panel.set_xlabel("step")
        panel.set_title({"mel": "mel, mean absolute error", "duration": "log duration, mean absolute error"}[part])
        panel.legend()
    panels[2].semilogy([e["step"] for e in pronouncer], [e["loss"] for e in pronouncer])
    panels[2].set_xlabel("step")
    panels[2].set_title("pronouncer, cross-entropy a phone")
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
