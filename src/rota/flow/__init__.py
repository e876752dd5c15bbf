"""The path of a run, one verb per file, in the order it happens."""
