"""A panel as HTML for a notebook: compact, light or dark as the notebook is, without scripts and requests. Pure.

Every output has the style sheet, with the same rules for elements inside `.tm-panel` alone, so that outputs do not
disturb one another, nor the notebook. JupyterLab tells its theme by an attribute of the page; other pages follow the
system.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from training_monitor.core.panels import LEVELS, MOST_UNKNOWN, Panel, Table
from training_monitor.core.units import name_some

_SIGNS = {"ok": "✓", "warning": "!", "failed": "✕", "unknown": "?"}
_LIGHT = (
    "--tm-page:#fff;--tm-edge:#d8dee6;--tm-text:#16202c;--tm-dim:#52606f;--tm-line:#1f55c4;"
    "--tm-ok:#14703d;--tm-warning:#8a4f00;--tm-failed:#b3151f;--tm-unknown:#4f5b69;color-scheme:light"
)
_DARK = (
    "--tm-page:#161d26;--tm-edge:#2a3441;--tm-text:#e6ebf1;--tm-dim:#a3b0be;--tm-line:#86b0ff;"
    "--tm-ok:#63d594;--tm-warning:#f5b754;--tm-failed:#ff8585;--tm-unknown:#b3bfcc;color-scheme:dark"
)
STYLE = f"""<style>
.tm-panel{{{_LIGHT}}}
@media (prefers-color-scheme:dark){{.tm-panel{{{_DARK}}}}}
[data-jp-theme-light="true"] .tm-panel{{{_LIGHT}}}
[data-jp-theme-light="false"] .tm-panel{{{_DARK}}}
.tm-panel{{background:var(--tm-page);color:var(--tm-text);border:1px solid var(--tm-edge);border-radius:6px;
padding:.5em .75em;font:13px/1.45 system-ui,sans-serif;max-width:72em;overflow-x:auto;overflow-wrap:anywhere}}
.tm-panel p{{margin:.15em 0}}
.tm-panel .tm-dim{{color:var(--tm-dim)}}
.tm-panel .tm-level{{font-weight:600;white-space:nowrap}}
.tm-panel .tm-ok{{color:var(--tm-ok)}}
.tm-panel .tm-warning{{color:var(--tm-warning)}}
.tm-panel .tm-failed{{color:var(--tm-failed)}}
.tm-panel .tm-unknown{{color:var(--tm-unknown)}}
.tm-panel table.tm-table{{border-collapse:collapse;border:0;margin:.4em 0;font-size:inherit;color:inherit}}
.tm-panel table.tm-table caption{{text-align:left;color:var(--tm-dim);padding:0}}
.tm-panel table.tm-table tr{{background:none}}
.tm-panel table.tm-table :is(th,td){{text-align:left;vertical-align:top;padding:.12em .9em .12em 0;border:0;
border-top:1px solid var(--tm-edge);white-space:normal;max-width:36em;font-variant-numeric:tabular-nums}}
.tm-panel table.tm-table th{{font-weight:400;color:var(--tm-dim)}}
.tm-panel ul{{margin:.15em 0;padding-left:1.4em}}
.tm-panel figure{{display:inline-block;margin:.4em .9em .2em 0;color:var(--tm-line)}}
.tm-panel figcaption{{color:var(--tm-text)}}
.tm-panel svg{{display:block;max-width:100%;height:auto}}
.tm-panel svg :is(.label,.grid){{color:var(--tm-dim)}}
</style>"""


def format_html(panel: Panel, charts: str = "") -> str:
    """Return a panel as HTML; `charts` is HTML to stand at its end."""
    return f'{STYLE}<div class="tm-panel" tabindex="0">{"".join(_parts(panel))}{charts}</div>'


def format_figure(title: str, svg: str) -> str:
    """Return a chart with its title."""
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"


def _parts(panel: Panel) -> Iterator[str]:
    judged = f"{_badge(panel.level, panel.level)} " if panel.level else ""
    said = f" <span>{escape(panel.said)}</span>" if panel.said else ""
    yield f"<p>{judged}<strong>{escape(panel.title)}</strong>{said}</p>"
    if panel.facts:
        rows = (f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in panel.facts)
        yield f'<table class="tm-table"><tbody>{"".join(rows)}</tbody></table>'
    for name, texts in panel.lists:
        yield f'<p class="tm-dim">{escape(name)}</p><ul>{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'
    for table in panel.tables:
        yield _table(table)
    if panel.unknown:
        yield f'<p class="tm-dim">not known: {escape(name_some(panel.unknown, MOST_UNKNOWN))}</p>'


def _table(table: Table) -> str:
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = ("".join(f"<td>{_cell(text, judged)}</td>" for text, judged in zip(row, table.judged)) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    more = f'<p class="tm-dim">and {table.left_out} more</p>' if table.left_out else ""
    return f'<table class="tm-table">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def _cell(text: str, judged: bool) -> str:
    level = LEVELS.get(text) if judged else None
    return _badge(level, text) if level else escape(text)


def _badge(level: str, text: str) -> str:
    return f'<span class="tm-level tm-{level}">{_SIGNS[level]} {escape(text)}</span>'
