"""Qwen3-Omni behind the engine's protocols, on transformers' own modules and weights."""
