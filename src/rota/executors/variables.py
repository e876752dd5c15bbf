"""The values of the variables of a job: the environment, arguments, and what Rota tells."""

from __future__ import annotations

import json
import os
from typing import Any

from rota.executors.context import Context
from rota.model.interpolate import variable_of


def values_of(context: Context) -> dict[str, str]:
    """Read anew for each attempt. A run's own arguments, and the [params] of its job where it has
    none, win over the environment, by their name in capitals; what Rota tells wins over both."""
    values = dict(os.environ)
    for name, value in args_of(context).items():
        if value is not None:
            values[variable_of(name)] = _text(value)
    return values | told_by_rota(context)


def args_of(context: Context) -> dict[str, Any]:
    """The arguments of a run; where it brings none, those of its job."""
    return {**context.definition.spec.get("params", {}), **context.args}


def told_by_rota(context: Context) -> dict[str, str]:
    return {
        "ROTA_JOB_NAME": context.job,
        "ROTA_RUN_ID": context.run_id,
        "ROTA_ATTEMPT": str(context.attempt),
        "ROTA_SCHEDULED_AT": context.scheduled_at.isoformat(),
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
