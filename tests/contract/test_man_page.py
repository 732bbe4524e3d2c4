"""docs/training-monitor.1 is what docs/write_man.py makes now, has every command and option, and is right roff."""

from __future__ import annotations

import configparser
import importlib.util
import re
import subprocess
from pathlib import Path

from tests.requirements import require
from training_monitor.cli.arguments import every_command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "training-monitor.1"


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("write_man", ROOT / "docs" / "write_man.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert PAGE.read_text(encoding="utf-8") == module.write_man(), "run: python3 docs/write_man.py"


def test_every_command_has_a_section_with_each_of_its_options() -> None:
    parts = re.split(r"^\.SS (.+)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2]))
    commands = every_command()
    assert [*sections] == [*commands]
    for name, takes in commands.items():
        for option in (option for each in takes for option in each.names if option not in ("-h", "--help")):
            escaped = option.replace("-", "\\-")
            assert re.search(rf"{re.escape(escaped)}(?=,|\\fR)", sections[name]), f"{name} {option}"


def test_mandoc_shows_what_is_to_be_typed_and_finds_only_that_it_has_no_date() -> None:
    done = subprocess.run([require("mandoc"), "-T", "lint", "-W", "style", str(PAGE)], capture_output=True, text=True)
    findings = [line.partition("training-monitor.1:")[2] for line in (done.stdout + done.stderr).splitlines()]
    assert [re.sub(r"^[\d:]+ ", "", each) for each in findings] == ['WARNING: missing date, using "": TH']
    done = subprocess.run([require("mandoc"), "-T", "ascii", str(PAGE)], capture_output=True, text=True, check=True)
    shown = re.sub(r".\x08", "", done.stdout)
    assert "training-monitor check local '~/runs/*/train.log'" in shown
    assert re.search(r"^ +-n, --namespace NAMESPACE$", shown, re.MULTILINE)
    assert re.search(r"^ +3 +unknown$", shown, re.MULTILINE) and "TRAINING_MONITOR_STATE_DIR" in shown


def test_the_wheel_installs_the_page() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options.data_files"]["share/man/man1"].split() == ["docs/training-monitor.1"]
