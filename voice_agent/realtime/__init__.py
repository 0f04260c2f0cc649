"""The session's side of the realtime protocol: its settings, a client's requests, and how a response is told."""
