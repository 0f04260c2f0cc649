#!/usr/bin/env bash
# Every figure of the model card, as JSON in models/tea-omni/figures/.
set -euo pipefail
cd "$(dirname "$0")/../.."
PY=.venv/bin/python
HERE=models/tea-omni
mkdir -p $HERE/figures
$PY $HERE/evaluate_voice.py --out $HERE/figures/voice.json
$PY $HERE/evaluate_voice.py --shuffle --each 20 --out $HERE/figures/voice_shuffled.json
$PY -m tests.evidence ttfc
$PY -m tests.evidence text
