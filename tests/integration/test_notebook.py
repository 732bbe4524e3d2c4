"""The example notebook in a real Jupyter kernel, its outputs in a real Chromium, and what ends with an interrupt."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.axe import axe_script
from tests.integration.browser import Browser, a_browser
from tests.integration.conftest import Surroundings, wait_until
from tests.integration.notebook_pages import (
    NOTEBOOK,
    PATIENCE,
    ROOT,
    execute_notebook,
    outputs_of,
    page_of,
    surroundings_of,
)
from tests.requirements import require_package
from training_monitor import check_job_status, start_process_job, stop_job

PRESS_SECONDS = 3
LOG_LINE = re.compile(r"loss=\d")
AXE = "const done = arguments[0]; axe.run().then((found) => done(found.violations), (error) => done([String(error)]))"
COLOURS = """return [...document.querySelectorAll('.tm-panel')].map((it) => getComputedStyle(it).backgroundColor)"""
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 29, 38)"
TRAINING = "for n in $(seq 1 6000); do echo step $n/6000 loss=0.5; sleep 0.1; done"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return execute_notebook(tmp_path_factory.mktemp("notebook"))


# ---------------------------------------------------------------- the example


def test_the_example_has_no_stored_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert NOTEBOOK.stat().st_size < 10_000


def test_the_example_shows_what_it_should(executed: Any) -> None:
    html, text = outputs_of(executed), outputs_of(executed, "text/plain")
    assert re.search(r"tm-(ok|warning)\">.{1,40}</span> <strong>local</strong>", html["check"])
    assert "process:fit-" in html["check"] and "3000" in html["check"]
    assert re.match(r"<BackgroundMonitor: (running|starting) \(\w+\): ", text["monitor"])
    assert "watching" in html["monitor"]
    assert re.search(r'<svg[^>]* aria-label="Loss: from [\d.]+, to ', html["history"]) and "<path" in html["history"]
    assert re.search(r"^[▁-█ ]+  Loss: from ", text["history"], re.MULTILINE)
    assert "running" in text["after"] and text["end"] == "'STOPPED'"
    [interrupt] = [cell.outputs for cell in executed.cells if cell.id == "interrupt"]
    *seen, last = "".join(re.sub(r"fit-\d+", "fit", each.text) for each in interrupt).splitlines()
    assert last == "no longer watching process:fit, which keeps running"
    assert seen and all(re.fullmatch(r"[\d-]+ [\d:,]+ INFO process:fit: RUNNING step .+", line) for line in seen)


def test_no_output_of_the_example_has_a_line_of_the_log_or_a_script(executed: Any) -> None:
    for kind in ("text/plain", "text/html"):
        for name, output in outputs_of(executed, kind).items():
            assert not LOG_LINE.search(output), name
            assert "<script" not in output and len(output) < 20_000, name


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


@pytest.mark.parametrize(
    ("theme", "system", "colour"),
    [
        (None, "dark", DARK),
        ("light", "dark", LIGHT),
        ("dark", "light", DARK),
    ],
)
def test_its_outputs_suit_light_and_dark_without_barriers(
    executed: Any, browser: Browser, tmp_path: Path, theme: str | None, system: str, colour: str
) -> None:
    script, page = axe_script(), tmp_path / "page.html"
    page.write_text(page_of(executed, theme), encoding="utf-8")
    browser.open("about:blank")
    browser.complaints()
    browser.addresses()
    browser.prefer(system)
    for width in (1280, 400) if theme is None else (400,):
        browser.resize(width, 900)
        browser.open(page.as_uri())
        assert set(browser.run(COLOURS)) == {colour} and len(browser.run(COLOURS)) == 4
        browser.run(script)
        found = browser.driver.execute_async_script(AXE)
        assert [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found] == []
        assert browser.run("return document.documentElement.scrollWidth") <= width
    cell = "return getComputedStyle(document.querySelector('.tm-table td'))"
    assert browser.run(f"{cell}.textAlign") == "left", "the notebook's own rules do not win"
    assert browser.run(f"{cell.replace(' td', ' tbody tr')}.backgroundColor") == "rgba(0, 0, 0, 0)"
    assert browser.run("return document.querySelector('svg .line').getBoundingClientRect().width") > 50
    assert browser.complaints() == []
    assert [each for each in browser.addresses() if not each.startswith(("file:", "about:", "data:"))] == []


# ---------------------------------------------------------------- interrupts


class Kernel:
    """A kernel, and a client that runs code in it."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self.client = manager, client

    def begin(self, code: str) -> str:
        return str(self.client.execute(textwrap.dedent(code), stop_on_error=False))

    def interrupt(self, number: str) -> dict[str, Any]:
        """The reply to what was begun, after the stop button.

        It is pressed again where nothing comes: a signal just before Python waits for a thread is seen after that.
        """
        for _ in range(PATIENCE // PRESS_SECONDS):
            self.manager.interrupt_kernel()
            with suppress(queue.Empty):
                while reply := self.client.get_shell_msg(timeout=PRESS_SECONDS):
                    if reply["parent_header"].get("msg_id") == number:
                        return dict(reply["content"])
        raise AssertionError("it goes on")


@contextmanager
def a_kernel(folder: Path) -> Iterator[Kernel]:
    require_package("ipykernel")
    manager, client = require_package("jupyter_client.manager").start_new_kernel(
        kernel_name="python3", env={**surroundings_of(folder), "TRAINING_MONITOR_JOBS_DIR": str(folder / "jobs local")}
    )
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)


LOOKS = {
    "monitor_job": "monitor_job('local', 'process:fit', 0.2, on_view=lambda view: seen())",
    "auto_restart": "auto_restart('local', 'fit', None, 1, 60, 300, 0.2, initial_job_id='process:fit',"
    " job_config={'command': ['false']}, on_look=lambda error: seen())",
    "background": "start_background_monitor('local', 'process:fit', 0.2, on_view=lambda view: seen()).join()",
}
SAID = {
    "monitor_job": "no longer watching process:fit, which keeps running",
    "auto_restart": "the supervision of fit has ended, but the training has not; repeat the same call to resume "
    "supervision",
    "background": "",
}


def test_the_stop_button_ends_the_looking_and_the_kernel_no_training(surroundings: Surroundings) -> None:
    job = start_process_job("local", TRAINING, "fit")
    with a_kernel(surroundings.folder) as kernel:
        for look, call in LOOKS.items():
            seen = surroundings.folder / look
            number = kernel.begin(f"""
                from pathlib import Path
                from training_monitor import auto_restart, monitor_job, start_background_monitor
                seen = Path({str(seen)!r}).touch
                {call}
            """)
            assert wait_until(seen.exists), look
            reply = kernel.interrupt(number)
            said = (reply["status"], reply.get("ename"), reply.get("evalue"))
            assert said == ("error", "KeyboardInterrupt", SAID[look])
            assert check_job_status("local", job) == "RUNNING"
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel()
    assert check_job_status("local", job) == "RUNNING"
    assert wait_until(lambda: not [line for line in surroundings.processes().values() if "ipykernel" in line])
    assert stop_job("local", job) == "STOPPED"
    assert wait_until(lambda: not surroundings.processes()), surroundings.processes()


def test_a_program_ends_with_its_background_monitors(surroundings: Surroundings) -> None:
    """At once, although the next look would be in an hour; the training goes on, and nothing else is left."""
    script = """
        import threading, training_monitor
        looked = threading.Event()
        job = training_monitor.start_process_job("local", "echo step 1/9; exec sleep 600", "fit")
        training_monitor.start_background_monitor("local", job, 3600, on_view=lambda view: looked.set())
        assert looked.wait(300)
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environ, capture_output=True, timeout=PATIENCE, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert check_job_status("local", "process:fit") == "RUNNING"
    assert stop_job("local", "process:fit") == "STOPPED"
    assert wait_until(lambda: not surroundings.processes()), surroundings.processes()
