"""How a body runs: one file per executor, found by name in the registry."""
