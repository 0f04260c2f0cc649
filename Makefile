# Every target does its own set-up. PYTHON names the interpreter (3.11 or 3.12) that makes .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
HOST ?= $(if $(TLS),0.0.0.0,127.0.0.1)
PORT ?= 8080
BIN := .venv/bin

.PHONY: help serve demo test check evidence bench train evaluate browser npm relay voices sdk clean
help:
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' || \
	  { echo "expected Python 3.11 or 3.12, got $$($(PYTHON) --version 2>&1): set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "no venv module: apt-get install python3-venv"; exit 1; }

# torch goes first: other packages ask for it without a version.
.venv/.installed: pyproject.toml | .venv/bin/pip
	$(BIN)/pip install -q "$$(grep -oE 'torch==[0-9.]+' pyproject.toml)"
	$(BIN)/pip install -q -e .
	$(BIN)/python -m voice_agent.weights
	@touch $@

.venv/.dev: .venv/.installed
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@

.venv/.train: .venv/.dev
	$(BIN)/pip install -q -e '.[dev,train]'
	@touch $@

serve: .venv/.installed ## set up, start the server with the ordering demo, print its address; TLS=1: https, for phones
	$(BIN)/voice-agent serve --host $(HOST) --port $(PORT) $(if $(TLS),--tls) $(if $(CONFIG),--config $(CONFIG))

demo: .venv/.installed ## a recorded order through a real WebRTC call; fails unless the cart is right
	$(BIN)/voice-agent call --serve demos/ordering/order.wav --save reply.wav \
	  --expect-cart '[{"drink":"pearl_milk_tea","quantity":1,"size":"medium","ice":"less_ice","sugar":"full_sugar","toppings":[]}]'

# What page and SDK need besides Python: installed on Debian where we are root, asked for elsewhere.
absent = $(strip $(if $(shell command -v $(1) || true),,$(2)))
need = @test -z "$(1)" || { test "$$(id -u)" = 0 && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1) >/dev/null; } || \
	  { echo "expected programs of Debian that are not here: apt-get install $(1)"; exit 1; }
browser:
	$(call need,$(call absent,chromium,chromium fonts-noto-cjk))
npm:
	$(call need,$(call absent,npm,nodejs npm))
# The voices that a bench's own scenario may speak with.
voices:
	$(call need,$(call absent,espeak-ng,espeak-ng))
# The TURN server that calls are relayed by in tests, which make networks of their own: as root alone.
relay:
	$(call need,$(if $(filter 0,$(shell id -u)),$(call absent,turnserver,coturn)))

NODE := $(addsuffix /node_modules,tools/sdk demos/openai_clients demos/webrtc_sdk)
$(NODE): %/node_modules: %/package.json | npm
	cd $* && npm install --no-package-lock --no-audit --no-fund --silent
	@touch $@

test: .venv/.dev browser relay voices $(NODE) ## every test; those in real time come last, one after the other
	$(BIN)/python -m pytest -m "not realtime" -n auto --maxprocesses 4 --dist worksteal
	$(BIN)/python -m pytest -m realtime

check: .venv/.dev ## formatter, linter, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# `make evidence NAME`: the full trial count of one figure; writes evidence/NAME.json.
ifeq (evidence,$(firstword $(MAKECMDGOALS)))
EVIDENCE := $(wordlist 2,2,$(MAKECMDGOALS))
$(eval .PHONY: $(EVIDENCE))
$(eval $(EVIDENCE):;@:)
endif
evidence: .venv/.dev ## run the trials of one figure: make evidence NAME
	$(BIN)/python -m tests.evidence $(EVIDENCE)

# Each scenario once; `make evidence bench-standard` has the full counts.
BENCH := order-zh order-en orders interruptions distractions pause-0600 pause-1000 echo-loop lost-packet
bench: .venv/.installed ## what a caller hears, in ten minutes; writes bench-out, evidence/bench.md and the table of the READMEs
	$(BIN)/voice-agent bench run $(BENCH) --serve --trials 1 --out bench-out \
	  --table evidence/bench.md --into README.md --into README.zh.md

train: .venv/.train ## make tea-omni anew: thinker, the teachers' speech, codec, talker (hours; resumable)
	models/tea-omni/train.sh

evaluate: .venv/.train ## the figures of the parts of tea-omni (calls: make evidence)
	models/tea-omni/evaluate.sh

sdk: .venv/.installed tools/sdk/node_modules ## the SDK's event types from the server's schemas, its declarations and its API page (needs npm)
	$(BIN)/python tools/sdk/events.py
	find web/sdk/types -name '*.d.ts' ! -name events.d.ts -delete
	cd tools/sdk && npx tsc -p . && npx typedoc

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
