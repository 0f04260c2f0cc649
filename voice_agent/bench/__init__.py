"""A latency harness: scripted callers, what they heard measured on one aligned recording, and reports of it.

`recording` holds a call, `detect` finds voice in it, `figures` and `statistics` measure it; all of that is sans-IO.
`scenario` and `script` say what a caller does; `caller` does it over a `link` (`webrtc`, `websocket`); `runner` and
`load` place many calls, `checks` and `results` judge them, `report` and `compare` show them. `calibrate` measures the
bench itself, with a `synthetic` agent.
"""
