"""tea-omni: the embedded default, a small bilingual Omni model that runs on a laptop's CPU."""
