"""Find an agent: by the path of its folder or file, or the ordering demo by default."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from voice_agent.agent import Agent
from voice_agent.assets import asset


def load_agent(path: Path | None = None) -> Agent:
    """The `agent` of a Python file, or of `agent.py` in a folder that is a package; None: the ordering demo.

    Raises ValueError if the path holds no agent.
    """
    path = asset("demos/ordering") if path is None else path
    name = f"voice_agent_loaded_{path.resolve().stem}"
    file = path / "__init__.py" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"{path}: expected a Python file, or a folder with __init__.py and agent.py")
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(path)] if path.is_dir() else None
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if path.is_dir():
        module = importlib.import_module(f"{name}.agent")
    agent = getattr(module, "agent", None)
    if not isinstance(agent, Agent):
        raise ValueError(f"{path}: expected a variable `agent` of type Agent, got {type(agent).__name__}")
    return agent
