"""Full trial counts of the figures that the README and the model card give: `make evidence NAME`.

Each name is a module here with `async def run(seed, trials) -> dict`; the dict and what it was measured on are
written to `evidence/NAME.json`.
"""
