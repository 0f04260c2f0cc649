"""The ordering demo: a drink shop's clerk, built with the public surface of `voice_agent` alone."""
