"""A latency harness: scripted callers, what they heard measured on one aligned recording, and reports of it.

`recording` holds a call, `detect` finds voice in it, `figures` and `statistics` measure it; all of that is sans-IO.
`mouth`, `webrtc`, `websocket` and `caller` place a call by a `scenario`; `runner` places many, `report` shows them.
"""
