"""``/``: which process answers, and its term.  Each request has used the masters."""

import os

from django.http import JsonResponse
from django.urls import path

from redlock.adapters.django import masters
from tests.adapters.shop.leading import election


def health(request):
    with masters().lock(f"request:{os.getpid()}"):
        term = election.term
        return JsonResponse({"pid": os.getpid(), "term": term and term.number})


urlpatterns = [path("", health)]
