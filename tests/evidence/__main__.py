"""`python -m tests.evidence NAME [--trials N] [--seed S]`: run one figure's trials and store the result."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(
    path.stem.replace("_", "-")
    for path in Path(__file__).parent.glob("*.py")
    if not path.stem.startswith(("_", "tools"))
)


def commit() -> str:
    """The commit, with + when the tree differs from it."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def processor() -> str:
    """Its name, and the widest instructions that torch finds: times depend on these more than on anything else."""
    import torch

    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    vnni = " with VNNI" if torch.cpu.get_capabilities().get("avx512_vnni", False) else ""
    return f"{next(names, platform.processor())}, {torch.backends.cpu.get_cpu_capability()}{vnni}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make evidence", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--trials", type=int, default=0, help="0: the figure's full count")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    # Read before the run: what is committed meanwhile is not what was measured.
    load, measured = os.getloadavg(), commit()
    began = datetime.datetime.now(datetime.UTC)
    module = importlib.import_module(f"tests.evidence.{args.name.replace('-', '_')}")
    result = asyncio.run(module.run(args.seed, args.trials or module.TRIALS))
    record = {
        "name": args.name,
        "commit": measured,
        "seed": args.seed,
        "trials": args.trials or module.TRIALS,
        "began": began.isoformat(timespec="seconds"),
        "seconds": round((datetime.datetime.now(datetime.UTC) - began).total_seconds(), 1),
        "load_average_before": load,
        "load_average_after": os.getloadavg(),
        "cores": os.cpu_count(),
        "processor": processor(),
        "python": platform.python_version(),
        **result,
    }
    folder = ROOT / "evidence"
    folder.mkdir(exist_ok=True)
    path = folder / f"{record['name']}.json"
    path.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", "utf-8")
    shown = {key: value for key, value in record.items() if key != "each"}
    print(json.dumps(shown, ensure_ascii=False, indent=1))
    print(f"written to {path.relative_to(ROOT)}")
    return 0 if record.get("passed", True) else 1


if __name__ == "__main__":
    sys.exit(main())
