"""A headless Chromium, driven by selenium: what it shows, what it complains about, and whom it asks."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.conftest import wait_until
from tests.requirements import miss, require

PATIENCE = 60.0
_ARGUMENTS = (
    *("--headless=new", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1"),
    *("--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-sync"),
)


class Browser:
    """One browser with one page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    def resize(self, width: int, height: int) -> None:
        values = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", values)

    def prefer(self, scheme: str = "light", media: str = "") -> None:
        """Show the page in a colour scheme, light or dark, and for a medium such as print."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features, "media": media})

    def run(self, script: str, *values: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *values)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        """The element, once it is there."""
        assert wait_until(lambda: self.all(selector), PATIENCE), f"there is no {selector}: {self.text()[:1000]}"
        return self.all(selector)[0]

    def text(self, selector: str = "body") -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        """Those of all such elements at one moment: a live page replaces its elements."""
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map((it) => it.innerText)", selector))

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        assert wait_until(condition, PATIENCE), f"not so: {what}\n{self.driver.title}\n{self.text()[:1500]}"

    def press(self, *keys: str) -> None:
        """Press keys by their names, where the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        for key in keys:
            ActionChains(self.driver).send_keys(getattr(Keys, key, key)).perform()

    def complaints(self) -> list[str]:
        """What the console holds since it was asked last."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def addresses(self) -> set[str]:
        """The addresses that were asked for since this was asked last."""
        return {each["request"]["url"] for each in self._events("Network.requestWillBeSent")}

    def statuses(self) -> list[int]:
        """Those of all answers since then, also of answers that the page itself does not get."""
        return [each["statusCode"] for each in self._events("Network.responseReceivedExtraInfo")]

    def _events(self, kind: str) -> list[Any]:
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [each["params"] for each in events if each["method"] == kind]


@contextmanager
def a_browser() -> Iterator[Browser]:
    """Start Chromium; skip or fail the test where it is missing."""
    chromium, driver = require("chromium"), require("chromedriver")
    try:
        webdriver = importlib.import_module("selenium.webdriver")
        service = importlib.import_module("selenium.webdriver.chrome.service")
    except ImportError:
        miss("chromium", "selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (*_ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=service.Service(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()
