"""A full-duplex voice agent over WebRTC."""

from voice_agent.agent import Agent, Call, Lines, irreversible

__all__ = ["Agent", "Call", "Lines", "irreversible", "serve"]


def serve(agent: Agent, *, host: str = "127.0.0.1", port: int = 8080, config: str | None = None) -> None:
    """Answer calls with this agent until interrupted; prints the address. `config`: path of a YAML file.

    Raises ValueError, before anything listens, for tools that the agent's model does not know.
    """
    from voice_agent.runtime import run_server

    run_server(agent, host=host, port=port, config_path=config)
