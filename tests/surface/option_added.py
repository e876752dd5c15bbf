"""Run by test_option_table.py: Rota with one more option of schedules, and what knows of it.

    python -m tests.surface.option_added URL

Nothing is changed but the fields of `Schedule`, before they are imported.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

MODULE = "rota.model.schedule"
FILE = Path(__file__).parents[2] / "src" / "rota" / "model" / "schedule.py"
AFTER = "    paused: bool = False\n"
OPTION = """    shuffle: int = option(
        7, Whole(1, 9), group="delay", help="With {overlap=queue}: change places, so often."
    )
"""


class Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = FILE.read_text("utf-8")
        assert source.count(AFTER) == 1
        return compile(source.replace(AFTER, OPTION + AFTER), str(FILE), "exec")


class Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        return spec_from_file_location(fullname, FILE, loader=Loader(fullname, str(FILE)))


def migrate(url: str) -> None:
    from rota.storage.store import open_store

    store = open_store(url)
    try:
        store.migrate()
    finally:
        store.close()


def derived(url: str) -> dict[str, Any]:
    """Imported here, when the option is there."""
    import msgspec

    import rota
    from rota.cli.main import main
    from rota.jobsd.manifest import KNOWN
    from rota.sql.execute import Statements
    from rota.web.openapi import describe
    from rota.web.routes.schedules import Edit, list_options
    from scripts.model_tables import PARTS, written

    def message(**options: Any) -> str:
        try:
            app.schedule("refused", job="work", every="1h", **options)
        except rota.Invalid as fault:
            return str(fault)
        return ""

    answer = io.StringIO()
    with redirect_stdout(answer):
        assert main(["schedule", "--help"]) == 0
    shapes = describe()["components"]["schemas"]
    files = {name: written(name, PARTS[name][0].read_text("utf-8")) for name in PARTS}
    migrate(url)
    app = rota.Rota(url)
    try:
        app.schedule("by/code", job="work", every="1h", shuffle=2)
        app.load()
        statements = Statements(app.control)

        def run(text: str) -> list[dict[str, Any]]:
            return list(statements.run(text))[-1].records()

        run("CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (shuffle = 3)")
        before = app.control.schedule("s").version
        run("ALTER SCHEDULE s SET shuffle = 4")
        view = app.control.select("SELECT name, shuffle FROM schedules ORDER BY name")
        (created,) = run("SHOW CREATE SCHEDULE s")
        return {
            "help": [line for line in answer.getvalue().splitlines() if "shuffle" in line],
            "message": message(shuffle=10),
            "known to files": sorted(kind for kind, names in KNOWN.items() if "shuffle" in names),
            "bodies": [shapes[name]["properties"]["shuffle"] for name in ("Edit", "NewSchedule")],
            "answer": shapes["ScheduleOut"]["properties"]["shuffle"],
            "answered": "shuffle" in shapes["ScheduleOut"]["required"],
            "patch": msgspec.convert({"shuffle": 4}, Edit).given(),
            "form": [
                msgspec.to_builtins(option)
                for option in list_options(None).items  # type: ignore[arg-type]  # nothing is asked
                if option.name == "shuffle"
            ],
            "view": [list(row) for row in view.rows],
            "of an older row": app.control.schedule("work").definition()["shuffle"],
            "last column": app.control.select("SELECT * FROM schedules").names[-1],
            "show create": created["create_statement"],
            "another version": app.control.schedule("s").version != before,
            "another plan": len({each.plan_key for each in app.control.schedules()}),
            "page": [line for line in files["values"].splitlines() if "`shuffle`" in line],
            "types": [line for line in files["options"].splitlines() if "shuffle" in line],
        }
    finally:
        app.close()


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder())
    print(json.dumps(derived(sys.argv[1])))
