"""Take the pictures of docs/web.md in Chromium: `python3 docs/draw_web.py` (as the tests, it needs selenium)."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.integration.browser import Browser, a_browser  # noqa: E402
from tests.integration.web_pages import served  # noqa: E402
from training_monitor.fleet.mock import MockFleet  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SHOTS = (  # name, view (a member by its name), width, height, scheme
    ("web-fleet", "#/", 1120, 640, "light"),
    ("web-fleet-dark", "#/", 1120, 640, "dark"),
    ("web-member", "lora-05", 1280, 1000, "light"),
    ("web-member-dark", "llama-00", 1280, 820, "dark"),
    ("web-alerts", "#/alerts", 1280, 420, "light"),
    ("web-cost", "#/cost", 1280, 760, "light"),
    ("web-phone", "#/", 360, 740, "light"),
)


def open_view(browser: Browser, view: str) -> None:
    """Open a view, and wait until it shows all that it has."""
    browser.run("location.hash = '#/'")
    browser.one("tbody tr")
    if not view.startswith("#"):
        [view] = [each.get_attribute("href") for each in browser.all(".member-name a") if each.text == view]
        view = view[view.index("#") :]
    browser.run("location.hash = arguments[0]", view)
    browser.one({"#/": "tbody tr", "#/alerts": "tbody tr"}.get(view, "svg .line"))
    browser.run("document.activeElement.blur()")


def draw() -> None:
    """Take all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with served(MockFleet(count=18)) as page, a_browser() as browser:
        browser.open(f"http://{page.host}{page.links[-1]}")
        for name, view, width, height, scheme in SHOTS:
            browser.resize(width, height)
            browser.prefer(scheme)
            open_view(browser, view)
            browser.wait("it is drawn in its size", lambda: browser.run(FITS))
            (PICTURES / f"{name}.png").write_bytes(browser.driver.get_screenshot_as_png())


FITS = """
return [...document.querySelectorAll("svg.chart")].every(
  (svg) => Math.abs(svg.viewBox.baseVal.width - svg.clientWidth) < 20)
"""

if __name__ == "__main__":
    draw()
