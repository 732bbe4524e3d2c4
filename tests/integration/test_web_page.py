"""The web page in a real Chromium: every view, live, on all sizes, by keyboard, and for everybody."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from tests.axe import axe_script
from tests.integration.browser import Browser, a_browser
from tests.integration.conftest import Surroundings, kill, wait_until
from tests.integration.web_pages import TOKEN, Served, command, served
from training_monitor.core.models import Failure
from training_monitor.core.store import Store
from training_monitor.fleet.config import FleetConfig, parse_member
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.mock import MockFleet
from training_monitor.look.meant import find_meant
from training_monitor.rent.queue import TrainingQueue
from training_monitor.supervision.run_state import RunState, plan_attempt, update_attempt
from training_monitor.targets.asking import Site
from training_monitor.vast.training_request import TrainingRequest
from training_monitor.web.pages import id_of

VIEWS = ("#/", "#/alerts", "#/cost", "member")
AXE = "const done = arguments[0]; axe.run().then((found) => done(found.violations), (error) => done([String(error)]))"
SET = """const it = document.querySelector(arguments[0]); it.value = arguments[1];
it.dispatchEvent(new Event(arguments[2]))"""
COLUMN = "return [...document.querySelectorAll('tbody tr')].map((row) => row.children[arguments[0]].innerText)"
MEMBER = "llama-00"
CUT = """return [...document.querySelectorAll('.frame')]
.filter((it) => it.scrollWidth > it.clientWidth + 1).map((it) => it.ariaLabel)"""
WIDTH = "return document.documentElement.scrollWidth"
SMALL = """return [...document.querySelectorAll('a:not(.skip), button, select, summary, input:not([type=hidden])')]
.map((it) => [it.innerText, it.getBoundingClientRect()])
.filter(([, box]) => box.width && Math.min(box.width, box.height) < 23.9).map(([text, box]) => [text, box.height])"""
EDGES = """const edge = (node) => { const range = new Range(); range.selectNodeContents(node);
  return Math.round(range.getBoundingClientRect().right); };
return [...document.querySelectorAll('thead th.number')].map((head) => [edge(head.querySelector('button').firstChild),
  ...[...document.querySelectorAll('tbody tr')].map((row) => edge(row.children[head.cellIndex].firstChild))])"""
TWICE = """const main = document.querySelector('main');
main.style.width = '500px';
requestAnimationFrame(() => requestAnimationFrame(() => { main.style.width = ''; }))"""
DRAWN = """return [...document.querySelectorAll('svg.chart')]
.map((svg) => Math.abs(svg.viewBox.baseVal.width - svg.clientWidth))"""
BY_STEP = "[aria-label='Metrics by step']"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


@pytest.fixture(scope="module")
def page() -> Iterator[Served]:
    fleet = MockFleet(config=FleetConfig(interval=1.0))
    with served(fleet, allow_write=True) as found:
        fleet.start()
        yield found
        fleet.close()


@pytest.fixture(autouse=True)
def usual(browser: Browser) -> Iterator[None]:
    """Begin with a light page of usual size; in the end nothing complained."""
    browser.resize(1280, 900)
    browser.prefer("light")
    browser.complaints()
    browser.addresses()
    yield
    browser.open("about:blank")


def begin(browser: Browser, page: Served, view: str = "#/") -> None:
    """Sign in and open a view."""
    browser.open(f"http://{page.host}{page.links[-1]}")
    go(browser, view)


def go(browser: Browser, view: str) -> None:
    if view == "member":
        go(browser, "#/")
        browser.one("tbody tr")
        view = link_to(browser, MEMBER)
    browser.run("location.hash = arguments[0]", view)
    selector = {"#/": "tbody tr", "#/alerts": "tbody tr", "#/cost": "svg .line"}.get(view, "svg .line")
    browser.one(selector)
    browser.wait("it is live", lambda: browser.text("#connection").startswith("live"))


def link_to(browser: Browser, name: str) -> str:
    """The address of a member's view."""
    links = browser.run("return [...document.querySelectorAll('.member-name a')].map((it) => [it.innerText, it.hash])")
    return str(dict(links)[name])


def test_every_view_shows_what_it_should_without_a_complaint(browser: Browser, page: Served) -> None:
    begin(browser, page)
    rows = browser.texts("tbody tr")
    assert len(rows) == 12 and rows[0].split()[:3] == ["error", "llama-03", "exited:"]  # the dearest of those in error
    assert "this is why" in browser.run("return document.querySelector('tbody tr .why').textContent")
    assert "$" in browser.text(".tiles")
    go(browser, "member")
    assert browser.text("h1") == MEMBER and "Loss = " in browser.text("pre")
    assert len(browser.all("figure svg.chart")) == 5
    go(browser, "#/alerts")
    assert "the loss is nan" in browser.text("main")
    go(browser, "#/cost")
    assert "Price of the fleet" in browser.text("main") and len(browser.all("tbody tr")) > 5
    day = r"\w+ \d+, [\d:]+"
    assert re.search(f"{day} to {day}", browser.text("main"))  # the days of both ends
    assert browser.complaints() == []
    elsewhere = [url for url in browser.addresses() if not url.startswith((f"http://{page.host}/", "data:", "about:"))]
    assert elsewhere == []


def test_no_table_is_cut_off_and_a_narrow_page_has_what_is_asked_most(browser: Browser, page: Served) -> None:
    begin(browser, page)
    browser.wait("all members", lambda: len(browser.all("tbody tr")) == 12)
    for width, heads in (
        (1440, {"Loss", "GPU", "Mem %", "Disk %", "$/h", "Total", "ETA"}),
        (820, {"Loss", "GPU %"}),
        (390, set()),
    ):
        browser.resize(width, 800)
        browser.wait("it fits", lambda: browser.run(CUT) == [])
        shown = {head.rstrip("▲") for head in browser.texts("thead th")}
        assert heads | {"Health", "Name", "Progress"} <= shown, (width, shown)
        for head, *values in browser.run(EDGES):
            assert all(abs(head - value) < 2 for value in values), (head, values)
    [others] = [each for each in browser.texts("tbody tr") if "lora-08" in each]
    assert "Loss" in shown or "Loss " in others
    assert all(word in others for word in ("GPU % ", "ETA ", "$/h $0.5", "Total $", "Disk % 96.4")), others
    go(browser, "#/cost")
    browser.wait("a table", lambda: len(browser.all("tbody tr")) > 5)
    assert browser.run(CUT) == []


def test_the_table_searches_sorts_and_filters(browser: Browser, page: Served) -> None:
    begin(browser, page)

    def names() -> list[str]:
        return browser.texts(".member-name a")

    browser.one("input[type=search]").send_keys("llama running")
    browser.wait("it is searched", lambda: 0 < len(names()) < 12 and all("llama" in name for name in names()))
    browser.run(SET, "input[type=search]", "", "input")
    browser.one("button.warning").click()
    browser.wait("warnings only", lambda: set(browser.texts("tbody .badge .word")) == {"warning"})
    browser.one("button.warning").click()
    [loss] = [each for each in browser.all("thead button") if each.text.startswith("Loss")]
    for direction, falls in (("ascending", False), ("descending", True)):
        loss.send_keys("\ue007")  # Enter
        head = browser.one(f"th[aria-sort={direction}]")
        assert head.text.startswith("Loss")
        place = browser.run("return [...document.querySelectorAll('thead th')].indexOf(arguments[0])", head)
        texts = browser.run(COLUMN, place)
        values = [float(text.split()[0]) for text in texts if text.split()[0] not in ("-", "nan")]
        assert values == sorted(values, reverse=falls) and texts[-1].startswith("-")
    browser.run(SET, "select", "lora", "change")
    browser.wait("a group", lambda: len(names()) == 4 and all(name.startswith("lora") for name in names()))
    browser.run(SET, "select", "", "change")
    assert browser.complaints() == []


def test_a_chart_zooms_by_keys_and_by_dragging_and_shows_its_numbers(browser: Browser, page: Served) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    begin(browser, page, "member")

    def points() -> int:
        return len(browser.all("[data-field=loss] circle"))

    def span() -> str:
        return browser.text("main [role=status].dim:last-child")

    whole, said = points(), span()
    browser.run("document.querySelector('[data-field=loss] .plot').focus()")
    browser.press("+")
    browser.wait("fewer points", lambda: points() < whole)
    browser.press("ARROW_LEFT")
    browser.wait("an earlier time", lambda: span() != said and points() > 0)
    browser.press("0")
    browser.wait("the whole hour", lambda: points() >= whole)
    plot = browser.one("[data-field=loss] .plot")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(browser.driver).move_to_element_with_offset(plot, -100, 0).click_and_hold().move_by_offset(
        150, 0
    ).release().perform()
    browser.wait("it is zoomed", lambda: 0 < points() < 0.7 * whole)
    browser.one("[data-field=loss] summary").click()
    browser.wait("its numbers", lambda: len(browser.all("[data-field=loss] tbody tr")) == points())
    title = browser.run("return document.querySelector('[data-field=loss] circle title').textContent")
    assert title.split()[2].replace(".", "").isdigit()
    assert browser.complaints() == []


def test_charts_fit_when_the_width_changes_twice_before_a_reply(browser: Browser, page: Served) -> None:
    begin(browser, page, "member")

    def fits() -> bool:
        return max(browser.run(DRAWN)) < 20

    browser.wait("the charts fit", fits)
    browser.addresses()
    browser.run(TWICE)
    asked: list[str] = []

    def widths() -> int:
        asked.extend(each for each in browser.addresses() if "/api/series" in each)
        return len({each.partition("&width=")[2].partition("&")[0] for each in asked})

    assert wait_until(lambda: widths() == 2, 8), asked  # without waiting for the next regular update
    browser.wait("the charts fit again", fits)
    tops = "return new Set([...document.querySelectorAll('figcaption')].map((it) => it.offsetHeight)).size"
    assert browser.run(tops) == 1  # so that charts beside each other are level


def test_an_unknown_member_is_one_sentence(browser: Browser, page: Served) -> None:
    script = axe_script()
    begin(browser, page)
    browser.run("location.hash = '#/member/0123456789abcdef'")
    browser.wait("it says so", lambda: "This member is not in the fleet." in browser.text("main"))
    assert browser.text("main").split("\n\n") == ["← Fleet", "Member", "This member is not in the fleet."]
    browser.run(script)
    assert browser.driver.execute_async_script(AXE) == [] and browser.complaints() == []


def test_long_names_and_groups_stay_in_bounds(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_monitor.fleet.mock.GROUPS", ("x" * 180, "y" * 90, "many words " * 12))
    with served() as page:
        begin(browser, page)
        views = ["#/", "#/alerts", "#/cost", browser.one(".member-name a").get_attribute("hash")]
        for view in views:
            go(browser, view)
            for width in (1440, 820, 390):
                browser.resize(width, 740)
                browser.wait(f"{view} fits {width}", lambda width=width: browser.run(WIDTH) <= width)


def test_changes_arrive_without_a_reload(browser: Browser, page: Served) -> None:
    begin(browser, page, "member")
    browser.run("window.mark = 1")
    first = browser.text("pre")
    browser.wait("the log goes on", lambda: browser.text("pre") != first)
    go(browser, "#/")
    shown = browser.text("tbody")
    browser.wait("the table goes on", lambda: browser.text("tbody") != shown)
    assert browser.run("return window.mark") == 1


def test_a_page_says_that_it_is_cut_off_and_reconnects_by_itself(browser: Browser, tmp_path: Path) -> None:
    with command(tmp_path, "--mock", "--port", "0") as (process, said):
        port = said["url"].split(":")[2].partition("/")[0]
        browser.open(said["url"])
        browser.wait("it is live", lambda: browser.text("#connection") == "live" and len(browser.all("tbody tr")) == 12)
        browser.run("window.mark = 1")
        process.send_signal(signal.SIGTERM)
        browser.wait("it says so", lambda: "Disconnected since" in browser.text("#banner"))
        assert browser.driver.title.startswith("✕ disconnected")
        words = set(browser.texts(".badge .word"))
        assert "ok" not in words and "was ok" in words  # what is not known is not healthy
    with command(tmp_path, "--mock", "--port", port):
        browser.wait("it is live again", lambda: browser.text("#connection") == "live")
        browser.wait("and says ok", lambda: "ok" in set(browser.texts(".badge .word")))
        assert browser.run("return window.mark") == 1 and not browser.text("#banner")


def test_a_page_without_new_data_is_not_called_live(browser: Browser, page: Served) -> None:
    begin(browser, page)
    browser.wait("it is live", lambda: browser.text("#connection").startswith("live"))
    browser.run(
        "const parse = JSON.parse; JSON.parse = (text) => {"
        " const it = parse(text); if (it?.times?.made_at) it.times.made_at -= 1000; return it; }"
    )
    browser.wait("it says so", lambda: browser.text("#connection") == "no new data")
    assert "no new data since" in browser.text("#banner")
    words = set(browser.texts(".badge .word"))
    assert "ok" not in words and "was ok" in words
    assert re.search(r"\? \d+ was ok", browser.text("#main"))


def test_a_stop_is_confirmed_its_alert_is_shown_and_alerts_are_acknowledged(browser: Browser, page: Served) -> None:
    begin(browser, page)
    browser.run("location.hash = arguments[0]", link_to(browser, "vision-10"))
    browser.one("button.danger").click()
    sure = browser.one("dialog button[type=submit]")
    browser.one("dialog input").send_keys("stop")
    assert not sure.is_enabled() and "The machine" not in browser.text("dialog h2")
    phrase = browser.text("dialog strong")
    browser.one("dialog input").clear()
    browser.one("dialog input").send_keys(phrase)
    browser.wait("it may be sent", sure.is_enabled)
    sure.click()
    browser.wait("the dialog is gone", lambda: not browser.all("dialog"))
    go(browser, "#/alerts")
    browser.wait("its alert", lambda: "it is stopped" in browser.text("main"))
    ends = "return [...document.querySelectorAll('td button')].map((it) => it.getBoundingClientRect().right)"
    assert len(set(browser.run(ends))) == 1  # in a column
    browser.one("button[aria-label*='the loss is nan']").click()
    browser.wait("what is acknowledged", lambda: "the loss is nan (nan, acknowledged)" in browser.text("main"))
    number = int(phrase.split()[1])
    page.fleet.act("stop", [f"vast://{number}"])
    page.fleet.act("stop", [f"vast://{number}"])  # is refused: the first one is under way
    browser.wait("a toast", lambda: "another action on this member is in progress" in browser.text("#toast"))
    browser.wait("the title", lambda: browser.driver.title.startswith("⚠ vision-10: refused"))
    browser.one("#toast button").click()
    browser.wait("it is gone", lambda: not browser.text("#toast") and "⚠" not in browser.driver.title)
    assert browser.complaints() == []


def test_a_dialog_is_closed_with_its_view(browser: Browser, page: Served) -> None:
    begin(browser, page, "member")
    browser.one("button.danger").click()
    browser.one("dialog[open]")
    go(browser, "#/alerts")
    browser.wait("the dialog is gone", lambda: not browser.all("dialog"))
    assert browser.complaints() == []


def test_the_banner_shows_the_worst_open_alert_and_of_these_the_newest(browser: Browser) -> None:
    with served(allow_write=True) as page:
        alerts = [alert for alert in page.fleet.snapshot().alerts if alert.ended is None]
        errors = [alert.text for alert in reversed(alerts) if alert.level == "error"]
        warnings = [alert.text for alert in reversed(alerts) if alert.level == "warning"]
        assert errors and warnings
        begin(browser, page)

        def shows(text: str) -> bool:
            return text in browser.text("#toast")

        for text in (*errors, warnings[0]):
            assert wait_until(partial(shows, text)), text
            identity = next(alert.identity for alert in alerts if alert.text == text)
            page.fleet.acknowledge([identity])
        browser.one("#toast button").click()
        browser.wait("all are put away", lambda: not browser.text("#toast"))
        assert browser.complaints() == []


def test_members_come_first_on_a_phone(browser: Browser, page: Served) -> None:
    browser.resize(360, 740)
    begin(browser, page)
    browser.one("#toast button").click()
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    assert browser.run(top, "tbody tr") < 260 and browser.run(top, ".tiles") > browser.run(top, "tbody tr:last-child")
    assert browser.run("return document.querySelector('.levels').getBoundingClientRect().height") < 40


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_360_pixels_and_has_no_barriers(browser: Browser, page: Served, view: str) -> None:
    script = axe_script()
    begin(browser, page, view)
    for width, scheme in ((2560, "light"), (360, "light"), (360, "dark")):
        browser.resize(width, 740)
        browser.prefer(scheme)
        browser.wait("it fits", lambda width=width: browser.run(WIDTH) <= width)
        assert browser.run(SMALL) == []
        browser.run(script)
        found = browser.driver.execute_async_script(AXE)
        told = [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found]
        assert told == [], (width, scheme, told)
    assert browser.run("return getComputedStyle(document.documentElement).backgroundColor") == "rgb(14, 19, 25)"


def test_the_sign_in_has_no_barriers_and_leads_in(browser: Browser) -> None:
    script = axe_script()
    with served(token="a-token-of-some-length") as page:
        browser.open(f"http://{page.host}/")
        assert browser.driver.current_url.endswith("/open")
        browser.run(script)
        assert browser.driver.execute_async_script(AXE) == []
        browser.one("#token").send_keys("another-token")
        browser.one("button").click()
        assert browser.one("[role=alert]").text == "This token is wrong."
        browser.run(script)
        assert browser.driver.execute_async_script(AXE) == []
        assert all("403" in each for each in browser.complaints())
        browser.one("#token").send_keys("a-token-of-some-length")
        browser.one("button").click()
        browser.wait("it is in", lambda: len(browser.all("tbody tr")) == 12)
        assert browser.complaints() == []


def test_a_browser_signs_out_and_a_new_token_signs_it_out(browser: Browser, tmp_path: Path) -> None:
    port, file = "0", tmp_path / "token"

    @contextmanager
    def page_of(token: str) -> Iterator[str]:
        file.touch(0o600)
        file.write_text(token)
        with command(tmp_path, "--mock", "--token-file", str(file), "--port", port) as (_, said):
            yield said["url"].split(":")[2].partition("/")[0]

    def sign_in(token: str) -> None:
        browser.open(f"http://127.0.0.1:{port}/")
        browser.one("input[type=password]").send_keys(token, "\ue007")
        browser.one("tbody tr")

    with page_of(TOKEN) as found:
        port = found
        sign_in(TOKEN)
        browser.one("header form button").click()
        browser.one("input[type=password]")
        assert f"training_monitor_{port}" not in {each["name"] for each in browser.driver.get_cookies()}
        sign_in(TOKEN)
    with page_of(TOKEN):
        browser.wait("it is live again", lambda: browser.text("#connection").startswith("live"))
    with page_of("a-new-token-of-some-length"):
        browser.wait("the old token's cookie is over", lambda: browser.all("input[type=password]"))
        sign_in("a-new-token-of-some-length")
    browser.complaints()


def test_the_attempts_of_a_training_are_shown_with_their_evidence(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    began = time.time() - 1000
    failure = Failure("oom", "user", "stop", "CUDA out of memory <b>", fingerprint="oom")
    run = plan_attempt(RunState("local train", "local", "train", "", began), "process:train", None, (), began)
    why = "3 of 4 ranks wait in all_reduce; rank 1 is in <i>data.py:41</i>: look there."
    nodes = {"suspect_nodes": ["node-a"], "faulty_nodes": ["node-b"]}
    run = update_attempt(run, status="FAILED", final_step=70, ended_at=began + 500, failure=asdict(failure))
    run = update_attempt(run, explanation=why, **nodes)
    run = replace(plan_attempt(run, "process:train-attempt-2", None, (), began + 600), avoid_nodes=("node-b",))
    Store().save_run(run.key, run, finished=False)
    key = "local#process:train-attempt-2"
    with served(FleetMonitor([parse_member(key)])) as page:
        browser.open(f"http://{page.host}{page.links[-1]}")
        browser.one("tbody tr")
        browser.run("location.hash = arguments[0]", f"#/member/{id_of(key)}")
        browser.wait("both", lambda: len(browser.all(".attempt")) == 2)
        said = browser.text("main")
        assert "Attempt 2" in said and "evidence (oom, user): CUDA out of memory <b>" in said
        assert "70 steps lost" in said and "steps 0 to 70" in said and "? unknown" not in said
        assert f"Why: {why}" in said and "nodes to avoid: node-b" in said and "null" not in said
        assert "nodes: node-b (hardware fault), node-a (other ranks waited for its rank)" in said
        assert browser.text("h1") and browser.all(".badge.unknown") and browser.complaints() == []


WRITER = """
import sys, time
from training_monitor import TrainingMonitor

config = {"batch_size": 8, "optimizer": {"name": "adamw"}, "api_key": "secret-word", "a" * 90: "b" * 90}
with TrainingMonitor("progress/llama", config=config, interval=0.1) as monitor:
    monitor.start_epoch(1, total_batches=3000, total_epochs=1)
    for step in range(3000):
        monitor.start_batch()
        monitor.update_metrics(lr=1e-3 * (1 - step / 3000), train_loss=4 / (1 + step / 300))
        if step % 500 == 499:
            loss = float("nan") if step == 1999 else 5 / (1 + step / 900)
            monitor.update_metrics(**{"eval/" + "x" * 80 + "/val_loss": loss})
        if step % 50 == 49 and len(sys.argv) > 1:
            time.sleep(0.12)
    time.sleep(600 if len(sys.argv) > 1 else 0)
"""


def test_the_progress_file_of_a_training_is_shown_by_step(browser: Browser, surroundings: Surroundings) -> None:
    script = f"train_web_{os.getpid()}.py"
    (surroundings.folder / script).write_text(WRITER)
    words = [sys.executable, script]
    subprocess.run(words, cwd=surroundings.folder, check=True, timeout=60)
    process = subprocess.Popen([*words, "stays"], cwd=surroundings.folder)
    file = surroundings.folder / "progress" / "llama" / "progress.json"
    assert wait_until(lambda: process.pid == json.loads(file.read_text())["metadata"]["pid"])
    assert wait_until(lambda: json.loads(file.read_text())["state"].get("step") == 3000)
    [meant] = find_meant(Site.of("local"), str(process.pid)).trainings
    fleet = FleetMonitor(config=FleetConfig(interval=1.0))
    fleet._make_member = partial(fleet._make_member, found=meant)  # among all trainings of a busy machine
    fleet._add_members([parse_member(f"local#{process.pid}")])
    with served(fleet) as page, closing(fleet):
        fleet.start()
        begin(browser, page)
        browser.one(".member-name a").click()
        browser.wait("its charts", lambda: len(browser.all(f"{BY_STEP} svg")) == 3)
        titles = browser.texts(f"{BY_STEP} figcaption span:first-child")
        assert sorted(titles[:2])[1] == "train_loss" and titles[2] == "lr" and "val_loss" in browser.text(BY_STEP)
        assert len(browser.all(f"{BY_STEP} .odd")) == 1 and "to step 3,000" in browser.text(BY_STEP)
        said = browser.text("main")
        assert "Attempt 2, after FINISHED at step 3000" in said and "optimizer.name\nadamw" in said
        assert "secret-word" not in browser.driver.page_source and "null" not in browser.text(BY_STEP)
        browser.one(f"{BY_STEP} summary").click()
        rows = f"{BY_STEP} details[open] tbody tr"
        browser.wait("its numbers", lambda: browser.texts(rows) and browser.texts(rows)[0].startswith("step 3,000"))
        browser.run(axe_script())
        for width, scheme in ((1280, "light"), (390, "dark")):
            browser.resize(width, 740)
            browser.prefer(scheme)
            browser.wait("it fits", lambda width=width: browser.run(WIDTH) <= width)
            assert browser.driver.execute_async_script(AXE) == []
        process.send_signal(signal.SIGSTOP)  # it would write the file again
        file.rename(file.with_suffix(".gone"))
        browser.run("document.querySelector(arguments[0]).style.width = '50%'", BY_STEP)  # charts of another size
        browser.wait("why not", lambda: "The progress file cannot be read now" in browser.text(BY_STEP))
        assert len(browser.all(f"{BY_STEP} svg")) == 3 and browser.complaints() == []
    kill(process.pid)
    process.wait()


def test_a_thousand_members_are_shown_and_found(browser: Browser) -> None:
    with served(MockFleet(count=1000)) as page:
        begin(browser, page)
        browser.wait("all of them", lambda: len(browser.all("tbody tr")) == 1000)
        assert browser.text(".count") == "1000 members"
        browser.one("input[type=search]").send_keys("vision-997")
        browser.wait("one of them", lambda: browser.texts(".member-name a") == ["vision-997"])
        assert browser.text(".count") == "1 of 1000 members" and browser.complaints() == []


def test_a_page_can_be_used_by_keyboard_alone_and_printed(browser: Browser, page: Served) -> None:
    begin(browser, page)
    browser.open(f"http://{page.host}/")
    browser.one("tbody tr")
    browser.press("TAB", "ENTER")
    assert browser.run("return document.activeElement.id") == "main"
    browser.press("TAB")
    reached = set()
    for _ in range(60):
        reached.add(browser.run("return document.activeElement.tagName + ' ' + document.activeElement.textContent"))
        browser.press("TAB")
    assert {"BUTTON Loss", "A llama-03"} <= reached and any(each.startswith("INPUT") for each in reached)
    browser.prefer("light", "print")
    assert not browser.one("nav").is_displayed() and browser.one("tbody").is_displayed()


def test_a_persons_acts_renew_the_session_and_those_of_scripts_do_not(browser: Browser, page: Served) -> None:
    begin(browser, page)

    def acted() -> int:
        """The time of the last act, by the cookie."""
        [cookie] = [each for each in browser.driver.get_cookies() if each["name"].endswith(f"_{page.port}")]
        return int(cookie["value"].split(".")[1])

    def has_changed(before: int) -> bool:
        return wait_until(lambda: acted() > before, 3)

    before = acted()
    time.sleep(1.1)
    browser.run("dispatchEvent(new PointerEvent('pointerdown')); dispatchEvent(new KeyboardEvent('keydown'))")
    browser.run("fetch('/'); location.reload()")
    browser.one("tbody tr")
    time.sleep(1.1)
    assert acted() == before
    browser.driver.refresh()
    browser.one("tbody tr")
    assert has_changed(before)
    for act in (lambda: browser.one("nav a").click(), lambda: browser.press("j")):
        before = acted()
        time.sleep(1.1)
        act()  # the page was loaded within the last minute: that is enough
        assert not has_changed(before)
        browser.run("const now = performance.now.bind(performance); performance.now = () => now() + 61000")
        act()
        assert has_changed(before)


def test_the_queue_is_a_view_where_it_holds_a_training(browser: Browser, page: Served, tmp_path: Path) -> None:
    begin(browser, page)
    assert not browser.one("#queue-link").is_displayed()
    queue = TrainingQueue(Store(str(tmp_path / "state")))
    queue.submit(TrainingRequest("lora", command="train", budget=5.0), "lora-anna-portrait-1")
    with served(MockFleet(), queue=queue) as other:
        begin(browser, other)
        browser.wait("its link", lambda: browser.one("#queue-link").is_displayed())
        browser.one("#queue-link").click()
        browser.wait("its job", lambda: "lora-anna-portrait-1" in browser.text("tbody"))
        assert browser.texts("thead th") == ["Job", "State", "Budget", "Age"]
        browser.run(axe_script())
        for width, scheme in ((1280, "light"), (390, "dark")):
            browser.resize(width, 740)
            browser.prefer(scheme)
            assert browser.run(CUT) == [] and browser.run(WIDTH) <= width
            assert "$5.00" in browser.text("tbody")  # in its column, or below the job
            assert browser.driver.execute_async_script(AXE) == []
    assert browser.complaints() == []
