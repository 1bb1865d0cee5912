import os

from django.core.wsgi import get_wsgi_application

from redlock.adapters.django import masters

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.adapters.shop.settings")
application = get_wsgi_application()

# With --preload this is in the arbiter: its connections must not be those of the workers.
with masters().lock("loaded", timeout=20):
    print("loaded", os.getpid(), flush=True)
