"""The sql executor: folders of SQL files, and SQL as text, on any target."""

from rota.executors.sql.executor import SqlExecutor
from rota.executors.sql.files import read_scripts, step_file
from rota.executors.sql.scripts import run_script

__all__ = ["SqlExecutor", "read_scripts", "run_script", "step_file"]
