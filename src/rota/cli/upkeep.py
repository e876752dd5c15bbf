"""Care of the store: `migrate`, `prune` and `adopt`."""

from __future__ import annotations

from typing import Annotated

from rota.cli.options import HERE, Option, Where
from rota.cli.output import say, say_heading, say_json
from rota.cli.store import open_or_ask, operating, settings_of, store_file
from rota.model.redact import redact_text
from rota.storage.store import Store, open_store


def migrate(
    *,
    plan: Annotated[
        bool, Option("Only print the SQL that would run; nothing is created or changed.")
    ] = False,
    roles: Annotated[
        bool,
        Option(
            "PostgreSQL: make the roles of viewers, operators and workers too, or renew what they "
            "may."
        ),
    ] = False,
    where: Where = HERE,
) -> None:
    """Create the store, or bring it up to date."""
    settings = settings_of(where)
    place = redact_text(settings.database)
    file = store_file(settings.database)
    # Connecting creates a file, so the plan of a store that is not there is made in memory.
    absent = plan and file is not None and not file.exists()
    in_memory = settings.database.partition("://")[0] + ":///:memory:"
    store = open_store(in_memory, schema=settings.schema) if absent else open_or_ask(settings)
    pending, applied = [], []
    try:
        # A process that runs, of this same version, has brought its store up to date.
        if not isinstance(store, Store):
            pass
        elif plan:
            pending = store.pending_migrations()
            pending += [("roles", store.roles_sql)] if roles else []
        else:
            applied = store.migrate()
            store.check_schema()
            if roles:
                store.grant_roles()
                applied.append("roles")
    finally:
        store.close()
    if plan:
        return _say_plan(pending, place, where)
    if where.json:
        say_json({"database": place, "applied": applied})
    elif applied:
        say(f"{place} is up to date; applied {', '.join(applied)}")
    else:
        say(f"{place} was up to date already")


def prune(*, where: Where = HERE) -> None:
    """Delete what retention no longer keeps. A running scheduler does this every minute."""
    with operating(where) as control:
        deleted = control.prune()
    if where.json:
        say_json({"deleted": deleted})
    else:
        say(f"{deleted} runs deleted that retention no longer keeps")


def adopt(*, where: Where = HERE) -> None:
    """Confirm that this store was moved here on purpose, and resume its schedules."""
    settings = settings_of(where)
    with operating(where) as control:
        resumed = control.adopt(settings.cluster)
    if where.json:
        say_json({"resumed": resumed})
    else:
        say(f"adopted: this is where the store belongs now; {resumed} schedules resumed")


def _say_plan(pending: list[tuple[str, str]], place: str, where: Where) -> None:
    if where.json:
        return say_json([{"name": name, "sql": sql} for name, sql in pending])
    if not pending:
        return say(f"{place} is up to date")
    for name, sql in pending:
        say_heading(f"-- {name}")
        say(sql.strip())
