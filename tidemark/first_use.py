"""The names of a package that are imported at their first use.

A process that asks one question needs a part of the packages. So a package says in which modules its names
are, and none of these is imported with the package.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class Package(ModuleType):
    """A package with names that are imported at their first use.

    homes: the module of each name, and what it is called there; "" if it is the module itself.

    A function may have the name of its module, as in `warehouse.load`. The name is the function, whoever
    imported the module first.
    """

    homes: Mapping[str, tuple[str, str]]

    def __getattr__(self, name: str) -> Any:
        if name not in self.homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home, own = self.homes[name]
        module = import_module(home)
        value = getattr(module, own) if own else module
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Python sets each module that was imported as an attribute of its package."""
        if isinstance(value, ModuleType) and self.homes.get(name) == (value.__name__, name):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its name, as cloudpickle does with other modules that a task of Spark uses."""
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.homes})


def import_at_first_use(package: str, names: Mapping[str, str]) -> None:
    """Makes names of modules below a package its own.

    names: for each module below the package the names that it has, separated by spaces; for "" the names of
        modules.
    """
    module = sys.modules[package]
    vars(module)["homes"] = {
        name: (f"{package}.{home or name}", name if home else "")
        for home, of_home in names.items()
        for name in of_home.split()
    }
    module.__class__ = Package
