"""The arguments a job takes, and the check of a payload against them.

The stored form lets any process check an enqueue, also one that cannot import the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from rota.errors import BadArguments

# JSON type name -> what Python gives for it. bool is an int to Python and not to JSON.
_CHECKS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument; `types` are JSON type names, empty for anything."""

    name: str
    types: tuple[str, ...] = ()
    required: bool = True

    def accepts(self, value: object) -> bool:
        if not self.types:
            return True
        if isinstance(value, bool):
            return "boolean" in self.types
        return any(isinstance(value, _CHECKS[name]) for name in self.types)


@dataclass(frozen=True, slots=True)
class Signature:
    """`open` signatures take any further argument (a `**kwargs` function, a SQL job)."""

    parameters: tuple[Parameter, ...] = ()
    open: bool = field(default=False, kw_only=True)

    def check(self, job: str, args: Mapping[str, Any]) -> None:
        """Name everything that does not fit, at once."""
        if not args and not self.parameters:
            return
        known = {parameter.name: parameter for parameter in self.parameters}
        faults = [
            f"{name!r} is missing"
            for name, parameter in known.items()
            if parameter.required and name not in args
        ]
        for name, value in args.items():
            if name not in known:
                if not self.open:
                    faults.append(f"{name!r} is unknown{_hint(name, known)}")
            elif not known[name].accepts(value):
                wanted = " or ".join(known[name].types)
                faults.append(f"{name!r} must be {wanted}, not {type(value).__name__}")
        if faults:
            takes = ", ".join(known) or "no arguments"
            raise BadArguments(f"job {job!r}: {'; '.join(faults)} (it takes {takes})")

    def to_dict(self) -> dict[str, Any]:
        return {
            "open": self.open,
            "parameters": [
                {"name": p.name, "types": list(p.types), "required": p.required}
                for p in self.parameters
            ],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Signature:
        parameters = tuple(
            Parameter(name=p["name"], types=tuple(p["types"]), required=p["required"])
            for p in stored.get("parameters", ())
        )
        return cls(parameters, open=bool(stored.get("open", False)))


ANYTHING = Signature(open=True)


def _hint(name: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(name, known, n=1)
    return f", did you mean {close[0]!r}?" if close else ""
