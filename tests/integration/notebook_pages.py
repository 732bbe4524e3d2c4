"""examples/notebook.ipynb run by a real kernel, and what came out of it as a page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from tests.requirements import require_package

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
PATIENCE = 300  # seconds for one cell
# As JupyterLab has them for tables; those of the package must win.
_JUPYTER = """
.jp-RenderedHTMLCommon table { margin-left: auto; font-size: 12px; border: none }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th { text-align: right; white-space: nowrap; max-width: none }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: rgb(255, 0, 0) }
"""
_STYLE = """
body { margin: 0; font: 14px/1.5 system-ui, sans-serif; background: #fff; color: #1b1b1b }
body[data-jp-theme-light="false"] { background: #111; color: #e6e6e6 }
@media (prefers-color-scheme: dark) { body:not([data-jp-theme-light]) { background: #111; color: #e6e6e6 } }
main { max-width: 62rem; margin: 0 auto; padding: .5rem 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem }
pre { font: 12.5px/1.45 "DejaVu Sans Mono", monospace; white-space: pre-wrap; margin: .5rem 0 }
pre.code { background: rgba(128, 128, 128, .12); padding: .5rem .75rem; border-radius: 4px }
"""


def surroundings_of(folder: Path) -> dict[str, str]:
    """The environment of a kernel that keeps everything below a folder."""
    own = {"HOME": "home", "IPYTHONDIR": "ipython", "JUPYTER_CONFIG_DIR": "jupyter", "JUPYTER_RUNTIME_DIR": "runtime"}
    own |= {"TRAINING_MONITOR_STATE_DIR": "state", "TRAINING_MONITOR_JOBS_DIR": "jobs"}
    return {**os.environ, **{name: str(folder / below) for name, below in own.items()}, "PYTHONPATH": str(ROOT)}


def execute_notebook(folder: Path) -> Any:
    """Run every cell, and return the notebook with its outputs. Raises when a cell does."""
    require_package("ipykernel")
    notebook = require_package("nbformat").read(NOTEBOOK, as_version=4)
    client = require_package("nbclient").NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3")
    return client.execute(env=surroundings_of(folder))


def outputs_of(notebook: Any, kind: str = "text/html") -> dict[str, str]:
    """The outputs of a kind by the ids of their cells."""
    return {
        cell.id: "".join(output.data[kind])
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if kind in output.get("data", ())
    }


def page_of(notebook: Any, theme: str | None = None) -> str:
    """The notebook as a page; `theme` is JupyterLab's, light or dark, None of a page that has none of its own."""
    told = {"light": ' data-jp-theme-light="true"', "dark": ' data-jp-theme-light="false"', None: ""}[theme]
    head = f'<meta charset="utf-8"><title>notebook</title><style>{_JUPYTER}{_STYLE}</style>'
    body = "".join(part for cell in notebook.cells for part in _cell(cell))
    return f'<!doctype html><html lang="en"><head>{head}</head><body{told}><main>{body}</main></body></html>'


def _cell(cell: Any) -> Iterator[str]:
    if cell.cell_type == "markdown":
        for part in re.split(r"\n\n", cell.source):
            level = len(part) - len(part.lstrip("#"))
            tag = f"h{level}" if level else "p"
            text = re.sub("`([^`]+)`", r"<code>\1</code>", escape(part.lstrip("# ")))
            yield f"<{tag}>{text}</{tag}>"
        return
    yield f'<pre class="code">{escape(cell.source)}</pre>'
    for output in cell.outputs:
        if html := output.get("data", {}).get("text/html"):
            yield f'<div class="jp-RenderedHTMLCommon jp-RenderedHTML">{html}</div>'
        else:
            yield f"<pre>{escape(output.get('text') or output.data['text/plain'])}</pre>"
