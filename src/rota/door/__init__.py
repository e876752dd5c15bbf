"""The door of a process that has a DuckDB store: others ask it over a Unix socket."""
