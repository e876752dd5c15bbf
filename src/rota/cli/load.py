"""Find the app that `rota up MODULE:APP` names, or say clearly what is wrong with it."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from difflib import get_close_matches
from types import ModuleType

from rota.app import Rota
from rota.errors import Invalid

DEFAULT_NAME = "app"


def load_app(address: str) -> Rota:
    """Import MODULE from this folder or the installed packages, and take its APP."""
    module_name, _, name = address.partition(":")
    name = name or DEFAULT_NAME
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise Invalid(f"{module_name!r} is a file; name the module: rota up {dotted}:{name}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    found = _attribute(_import(module_name), name)
    if not isinstance(found, Rota):
        raise Invalid(
            f"{address!r} is {_article(type(found).__name__)}, not a rota.Rota; "
            f"make one with {name} = rota.Rota()"
        )
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as fault:
        # Missing is the module itself or a package on the way to it; anything else is its own.
        if fault.name is not None and f"{name}.".startswith(f"{fault.name}."):
            raise Invalid(
                f"module {name!r} is not in this folder ({os.getcwd()}) and not installed; "
                + (_meant(name) or "start `rota up` where the module can be imported")
            ) from None
        raise _failed(name, fault) from fault
    except (ValueError, TypeError) as fault:
        if not name or name.startswith("."):
            raise Invalid(
                f"module {name!r} is not a name; use rota up package.module:app"
            ) from None
        raise _failed(name, fault) from fault
    except Exception as fault:
        raise _failed(name, fault) from fault


def _meant(name: str) -> str | None:
    """A module of this folder, or of its `src`, that is nearly or exactly called so."""
    if os.path.exists(os.path.join("src", *name.split("."))) or os.path.exists(
        os.path.join("src", *name.split(".")) + ".py"
    ):
        return "it is in src: pip install -e . or PYTHONPATH=src makes it known"
    here = [entry.removesuffix(".py") for entry in os.listdir() if entry.endswith(".py")]
    close = get_close_matches(name, here, n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _attribute(module: ModuleType, name: str) -> object:
    try:
        return getattr(module, name)
    except AttributeError:
        apps = sorted(key for key, value in vars(module).items() if isinstance(value, Rota))
        hint = (
            f"it has {', '.join(apps)}: rota up {module.__name__}:{apps[0]}"
            if apps
            else f"it has no rota.Rota at its top level; make one with {name} = rota.Rota()"
        )
        raise Invalid(f"module {module.__name__!r} has no {name!r}; {hint}") from None


def _failed(name: str, fault: Exception) -> Invalid:
    """What went wrong while importing, and where in the user's own files."""
    told = f"{type(fault).__name__}: {fault}"
    if isinstance(fault, SyntaxError) and fault.filename:
        told = f"{type(fault).__name__}: {fault.msg}"
        return Invalid(f"module {name!r}: {told} ({_near(fault.filename)}, line {fault.lineno})")
    frames = traceback.extract_tb(fault.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename)]
    if not own:
        return Invalid(f"module {name!r} cannot be imported: {told}")
    place = f"{_near(own[-1].filename)}, line {own[-1].lineno}: {own[-1].line}"
    return Invalid(f"module {name!r} cannot be imported: {told} ({place})")


def _is_own(path: str) -> bool:
    """A file of the user: not the import system, not Rota, not an installed package."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return (
        not path.startswith("<")
        and "site-packages" not in path
        and not os.path.abspath(path).startswith((ours + os.sep, os.path.dirname(os.__file__)))
    )


def _near(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
