"""The local socket of a process that has a DuckDB store open: other processes send it calls."""
