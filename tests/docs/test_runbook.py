"""The runbook: what its boxes show is what a person sees, and each alert leads to a paragraph of it."""

from __future__ import annotations

import re
import shutil

import pytest
import yaml

from redlock.testing import clock_available
from tests.docs.pages import DOCS
from tests.docs.test_links import anchors
from tests.servers.needs import missing
from tests.servers.punctual import punctually
from tools import runbook

PAGE = runbook.on_the_page(runbook.PAGE.read_text(encoding="utf-8"))


def worded(said):
    """Without figures, and lines that are like the one before."""
    known = (line for line in said.splitlines() if line != "  …")
    lines = [" ".join(re.sub(r"[-+]?\d[\d.]*( ?(ms|s|min|K|M|B)\b)?", "#", line).split()) for line in known]
    different = (line for number, line in enumerate(lines) if line not in lines[number - 1 : number])
    return re.split(r"(?<=[.,:;]) ", " ".join(different))  # the terminal breaks lines elsewhere each time


@pytest.mark.longest
@pytest.mark.parametrize("name", runbook.SCENES)
def test_what_the_page_shows_is_what_one_sees(name):
    if name in runbook.CLOCKS and not clock_available():
        missing("libfaketime")
    if shutil.which("redis-cli") is None:
        missing("redis-cli")
    page = worded(PAGE[name])
    assert punctually(lambda: worded(runbook.played(name, slower=4.0)), page.__eq__) == page


def test_the_page_has_every_situation_and_no_other():
    assert list(PAGE) == list(runbook.SCENES)


def rules():
    page = (DOCS / "howto" / "monitoring.md").read_text(encoding="utf-8")
    [text] = re.findall(r"^groups:\n.*?(?=^```$)", page, re.DOTALL | re.MULTILINE)
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_its_paragraph(rule):
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == "howto/runbook.html"
    assert anchor in anchors(runbook.PAGE)
    assert f"`{rule['alert']}`" in runbook.PAGE.read_text(encoding="utf-8")
