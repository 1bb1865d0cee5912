"""``/``: which process answers, and its term.  Each request has used the masters."""

from __future__ import annotations

import os
from typing import Any

from django.http import JsonResponse
from django.urls import path

from redlock.adapters.django import masters
from tests.adapters.shop.leading import election


def health(request: Any) -> JsonResponse:
    with masters().lock(f"request:{os.getpid()}"):
        term = election.term
        return JsonResponse({"pid": os.getpid(), "term": term and term.number})


urlpatterns = [path("", health)]
