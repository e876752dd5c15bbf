"""The http executor: one request, to an address that was looked at first."""

from rota.executors.http.executor import HttpExecutor

__all__ = ["HttpExecutor"]
