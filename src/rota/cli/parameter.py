"""`Parameter`: what an option is called and how it is shown, told without loading cyclopts.

It is cyclopts' own, made when cyclopts looks at it. A line that `plain.py` reads never comes to
that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts import Parameter
else:

    class Parameter:
        """Stands for `cyclopts.Parameter(**told)`, also where `isinstance` asks."""

        def __init__(self, **told: Any) -> None:
            self.told = told

        @property
        def __class__(self) -> type:
            from cyclopts import Parameter

            return Parameter

        def __getattr__(self, name: str) -> Any:
            if "made" not in vars(self):
                self.made = self.__class__(**self.told)
            return getattr(self.made, name)


__all__ = ["Parameter"]
