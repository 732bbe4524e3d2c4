"""A channel is declared once: `config --init`, `config --check`, masking and NAME_env follow from its class."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

import pytest

from tests.unit.cli.test_settings_template import uncommented
from training_monitor.cli.commands.config import check_settings
from training_monitor.cli.settings_template import settings_template
from training_monitor.core import masking
from training_monitor.core.errors import SettingsError
from training_monitor.core.masking import redact
from training_monitor.core.settings_table import Example, settings_of, text
from training_monitor.core.values import Notice
from training_monitor.notify.channel import Channel, Doors
from training_monitor.notify.channels import CHANNELS, classes_of
from training_monitor.notify.configure import load_channels, settings_of_channel

PAGE = Path(__file__).parents[3] / "docs" / "notifications.md"
CODE = "wholly-quiet-code"


@dataclass(frozen=True)
class Beeper(Channel):
    """A beeper.

    Attributes:
        code: of the beeper.
        zone: where it is.
    """

    name = "beeper"
    code: Annotated[str, text("a code", is_secret=True), Example("code-of-the-beeper")] = field(repr=False)
    zone: Annotated[str, text("a zone")]

    def send(self, notice: Notice, to: object, doors: Doors) -> None:
        return None


@pytest.fixture(autouse=True)
def beeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHANNELS, "beeper", "beeper Beeper")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "training_monitor.notify.channels.beeper", sys.modules[__name__])
    monkeypatch.setattr(masking._Known, "values", ())


def write(folder: Path, table: dict[str, object], mode: int = 0o600) -> str:
    file = folder / "settings.json"
    file.write_text(json.dumps({"notifications": {"beeper": table}}))
    file.chmod(mode)
    return str(file)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")
def test_a_new_channel_is_in_the_new_settings_file(tmp_path: Path) -> None:
    file, text_of_file = tmp_path / "settings.toml", settings_template()
    assert "#[notifications.beeper]\n" in text_of_file and '#code = "code-of-the-beeper"\n' in text_of_file
    assert '#zone = "a zone"\n' in text_of_file, "what has no example shows what it may hold"
    assert re.search(r"\bcode_env\b[^.]* work in the same way", text_of_file.replace("\n# ", " "))
    file.write_text(uncommented(text_of_file))
    file.chmod(0o600)
    assert check_settings(str(file), {}).problems == ()


def test_the_secret_of_a_new_channel_is_masked_and_may_be_named(tmp_path: Path) -> None:
    expected = [Beeper(CODE, "north")]
    masking._Known.values = ()
    assert load_channels({}, write(tmp_path, {"code": CODE, "zone": "north"})) == expected
    assert redact(f"no beeper with {CODE} in north") == "no beeper with *** in north" and CODE not in repr(expected)
    by_name = {"code_env": "BEEPER", "zone": "north"}
    assert load_channels({"BEEPER": CODE}, write(tmp_path, by_name, 0o644)) == expected
    assert redact("the variable BEEPER") == "the variable BEEPER"


def test_a_file_with_the_secret_of_a_new_channel_must_be_ones_own(tmp_path: Path) -> None:
    file = write(tmp_path, {"code": CODE, "zone": "north"}, 0o644)
    with pytest.raises(SettingsError, match="the file contains beeper.code"):
        load_channels({}, file)
    assert [each.key for each in check_settings(file, {}).problems] == ["mode"]


@pytest.mark.parametrize(
    ("tables", "held"),
    [
        ({"notifications": {"command": {"argv": ["curl", "-H", "Authorization: Bearer quiet-word"]}}}, "command.argv"),
        ({"notifications": {"command": {"argv": ["page", "--token", "quiet-word"]}}}, "command.argv"),
        ({"notifications": {"telegram": {"token": "1:quiet"}}}, "telegram.token"),
        ({"notifications": {"email": {"server": "smtp://me@h", "from": "a@b", "password": "x"}}}, "email.password"),
        ({"notifications": {"ntfy": {"url": "https://ntfy.sh/topic"}}}, "ntfy.url"),
        ({"fleet": {"groups": {"a": [{"target": "ssh://me:quiet-word@host"}]}}}, "fleet.groups.a"),
        ({"log_patterns": {"x": "token=quiet-word"}}, "log_patterns.x"),
        ({"notifications": {"command": {"argv": ["/bin/page-me"]}, "telegram": {"token_env": "MY_TOKEN"}}}, None),
        ({"fleet": {"groups": {"a": ["ssh://gpu1#process:train"]}}}, None),
    ],
)
def test_a_secret_in_any_value_makes_the_check_fail_where_others_can_read(
    tmp_path: Path, tables: dict[str, object], held: str | None
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(tables))
    for mode, is_told in ((0o644, held is not None), (0o600, False)):
        file.chmod(mode)
        problems = check_settings(str(file), {"MY_TOKEN": "1:x"}).problems
        assert is_told == any(f"the file contains {held} " in each.expected for each in problems), problems
        assert is_told == bool([each for each in problems if each.key == "mode"])
        assert not [each for each in problems if "quiet-word" in f"{each.value} {each.expected}"]


def test_what_a_program_is_given_as_a_secret_is_masked_in_its_answer(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    argv = ["curl", "-H", "Authorization: Bearer quiet-word"]
    file.write_text(json.dumps({"notifications": {"command": {"argv": argv}}}))
    file.chmod(0o600)
    [channel] = load_channels({}, str(file))
    assert redact("refused: quiet-word is not known") == "refused: *** is not known"
    assert "quiet-word" not in repr(channel)


def test_no_secret_of_a_channel_is_in_its_repr() -> None:
    for made in (each for name in CHANNELS for each in classes_of(name)):
        shown = {each.name for each in fields(made) if each.repr}
        secret = {each.field for each in settings_of(made).values() if each.kind.is_secret}
        assert not shown & secret, made


def test_the_page_has_the_channels_in_their_order_with_every_setting() -> None:
    table = PAGE.read_text().partition("## Channels")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+)(.*)", table, re.MULTILINE)[1:]
    assert list(dict.fromkeys(name for name, _ in rows)) == [name for name in CHANNELS if name != "beeper"]
    for name in CHANNELS.keys() - {"beeper"}:
        row = "\n".join(rest for each, rest in rows if each == name)
        settings = {
            key: each for key, each in settings_of_channel(name).items() if key not in ("minimum_priority", "log_lines")
        }
        variables = {each.variable.removeprefix("TRAINING_MONITOR") for each in settings.values() if each.variable}
        assert not {key for key in settings if f"`{key}`" not in row}, name
        assert not {each for each in variables if f"{each}`" not in row and f"{each} " not in row}, name
