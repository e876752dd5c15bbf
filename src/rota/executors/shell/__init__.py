"""The shell executor: runs a command, given as a list, and ends all it started."""

from rota.executors.shell.executor import ShellExecutor

__all__ = ["ShellExecutor"]
