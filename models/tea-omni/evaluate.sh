#!/usr/bin/env bash
# The figures of the model card that are of thinker, talker and codec; the calls' own are measured by `make evidence`.
# Writes card/*.json and evidence/*.json. CACHE: the teachers' speech (~/.cache/tea-omni), which talker and codec are
# compared with where it is there; CACHE/eval: their speech of the evaluation's sentences (see evaluate_talker.py).
set -euo pipefail
cd "$(dirname "$0")/../.."
CACHE=${CACHE:-$HOME/.cache/tea-omni}
PY=.venv/bin/python
HERE=models/tea-omni
CARD=$HERE/card
$PY $HERE/evaluate_voice.py --out $CARD/voice.json
$PY $HERE/evaluate_voice.py --shuffle --out $CARD/voice_shuffled.json
$PY $HERE/evaluate_voice.py --sentences $HERE/reply_sentences.jsonl --out $CARD/replies.json
$PY $HERE/evaluate_given.py --out $CARD/given.json
$PY $HERE/evaluate_thinker.py $HERE/dialogues/dev.jsonl --timing
failed=0 # a bar that is missed does not keep the other figures from being measured
$PY -m tests.evidence text || failed=1
$PY -m tests.evidence end-of-turn || failed=1
$PY -m tests.evidence ttfc || failed=1
if [ -f "$CACHE/zh/meta.jsonl" ] && [ -f "$CACHE/en/meta.jsonl" ] && [ -f "$CACHE/codec/vocoder.npz" ]; then
  $PY $HERE/evaluate_codec.py --cache "$CACHE" --each 14 --out $CARD/codec.json
  if [ -f "$CACHE/eval/zh/meta.jsonl" ] && [ -f "$CACHE/eval/en/meta.jsonl" ]; then
    $PY $HERE/evaluate_talker.py --cache "$CACHE" --speech "$CACHE/eval" --out $CARD/talker.json
  else
    $PY $HERE/evaluate_talker.py --cache "$CACHE" --each 14 --out $CARD/talker.json
  fi
else
  echo "no speech of the teachers in $CACHE (train.sh makes it): talker and codec are not compared with it"
fi
exit $failed
