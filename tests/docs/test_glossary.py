"""Every class says what it is, in the first line of a docstring of its own: there is no other list of them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import django.conf

import redlock

_BORROWED = {"redlock.fenced.django.migrations.0001_initial.Migration"}  # its name is Django's


def unexplained():
    django.conf.settings.configure(INSTALLED_APPS=["redlock.fenced.django"])  # a model belongs to an application
    django.setup()
    found = set()
    for module in pkgutil.walk_packages(redlock.__path__, "redlock."):
        here = importlib.import_module(module.name)
        for name, one in inspect.getmembers(here, inspect.isclass):
            if one.__module__ == module.name and not name.startswith("_"):
                said = vars(one).get("__doc__") or ""
                if not said or said.startswith(f"{name}("):  # what a dataclass makes for itself
                    found.add(f"{module.name}.{name}")
    return sorted(found - _BORROWED)


def test_every_class_says_what_it_is():
    assert unexplained() == []
