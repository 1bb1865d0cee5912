import os

SECRET_KEY = "of no use"  # noqa: S105
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = ["tests.adapters.shop", "redlock.adapters.django"]
ROOT_URLCONF = "tests.adapters.shop.urls"
DEBUG = False
USE_TZ = True
REDLOCK = {"MASTERS": os.environ["REDLOCK_MASTERS"].split(","), "OPTIONS": {"restart_guard": False, "node_timeout": 2}}
