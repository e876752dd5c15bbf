"""The sql executor: folders of SQL files, and SQL as text, on any target."""

from rota.executors.sql.executor import SqlExecutor
from rota.executors.sql.scripts import run_script

__all__ = ["SqlExecutor", "run_script"]
