"""Take the picture of docs/notebook.md: `python3 docs/draw_notebook.py`.

As the tests, it needs Chromium, selenium, nbclient and ipykernel.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.integration.browser import a_browser  # noqa: E402
from tests.integration.notebook_pages import execute_notebook, page_of  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "notebook.png"
WIDTH = 820
CELLS = ("check-title", "check", "monitor-title", "monitor", "history", "interrupt-title", "interrupt")


def draw() -> None:
    """Run the example and take its picture."""
    with TemporaryDirectory() as folder, a_browser() as browser:
        page, notebook = Path(folder) / "page.html", execute_notebook(Path(folder))
        notebook.cells = [cell for cell in notebook.cells if cell.id in CELLS]
        page.write_text(page_of(notebook, "light"), encoding="utf-8")
        browser.resize(WIDTH, 600)
        browser.open(page.as_uri())
        height = browser.run("return document.querySelector('main').scrollHeight")
        browser.resize(WIDTH, int(height))
        PICTURE.write_bytes(browser.driver.get_screenshot_as_png())


if __name__ == "__main__":
    draw()
