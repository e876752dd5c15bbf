"""The http executor: sends a request, after a check of its address."""

from rota.executors.http.executor import HttpExecutor

__all__ = ["HttpExecutor"]
