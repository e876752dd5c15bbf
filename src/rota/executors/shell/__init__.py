"""The shell executor: a command, as a list of its arguments, run and ended with all it started."""

from rota.executors.shell.executor import ShellExecutor

__all__ = ["ShellExecutor"]
