import os

SECRET_KEY = "of no use"  # noqa: S105
INSTALLED_APPS = ["tests.adapters.shop", "redlock.adapters.django"]
DEBUG = False
USE_TZ = True
REDLOCK = {"MASTERS": os.environ["REDLOCK_MASTERS"].split(","), "OPTIONS": {"restart_guard": False, "node_timeout": 2}}
