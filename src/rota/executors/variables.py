"""Values of a job's variables: environment, arguments, and Rota's own variables."""

from __future__ import annotations

import json
import os
from typing import Any

from rota.executors.context import Context
from rota.model.interpolate import variable_of


def values_of(context: Context) -> dict[str, str]:
    """Variables and their values, read for each attempt.

    The environment, overridden by the arguments under their names in capitals, overridden by
    Rota's own variables. A run without an argument uses the [params] of its job."""
    values = dict(os.environ)
    for name, value in args_of(context).items():
        if value is not None:
            values[variable_of(name)] = _text(value)
    return values | rota_variables(context)


def args_of(context: Context) -> dict[str, Any]:
    """The arguments of a run; the [params] of its job fill in missing arguments."""
    return {**context.definition.spec.get("params", {}), **context.args}


def rota_variables(context: Context) -> dict[str, str]:
    return {
        "ROTA_JOB_NAME": context.job,
        "ROTA_RUN_ID": context.run_id,
        "ROTA_ATTEMPT": str(context.attempt),
        "ROTA_SCHEDULED_AT": context.scheduled_at.isoformat(),
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
