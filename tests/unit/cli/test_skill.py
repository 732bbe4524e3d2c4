"""`skill`: printed, and put where agents look, without losing what somebody wrote there."""

from __future__ import annotations

import json
import os
import subprocess
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import pytest

from training_monitor.cli.commands.skill import SUMS, install_skill, read_skill, skill_folder
from training_monitor.cli.main import main

ROOT = Path(__file__).parents[3]
OLD = {"SKILL.md": "old\n", "references/restart.md": "old page\n", "references/gone.md": "page of an old version\n"}
NEW = {"SKILL.md": "new\n", "references/restart.md": "new page\n"}


def texts(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "skills" / "training-monitor"


def test_it_is_written_once_and_then_left_alone(folder: Path) -> None:
    done = [install_skill(NEW, str(folder)) for _ in range(2)]
    assert [(each.state, each.files) for each in done] == [("installed", tuple(NEW)), ("unchanged", ())]
    assert texts(folder) == NEW
    assert subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=folder).returncode == 0


def test_a_new_version_replaces_and_removes_what_the_old_one_put_there(folder: Path) -> None:
    install_skill(OLD, str(folder))
    put(folder, "references/mine.md", "my notes\n")
    done = install_skill(NEW, str(folder))
    assert (done.state, set(done.files)) == ("updated", set(OLD))
    assert texts(folder) == {**NEW, "references/mine.md": "my notes\n"}


@pytest.mark.parametrize("name", NEW)
def test_an_edited_file_is_kept_with_all_others_until_forced(folder: Path, name: str) -> None:
    install_skill(OLD, str(folder))
    put(folder, name, "edited\n")
    before = texts(folder)
    refused = install_skill(NEW, str(folder))
    assert (refused.state, refused.files) == ("edited", (name,))
    assert texts(folder) == before
    assert install_skill(NEW, str(folder), force=True).state == "updated"
    assert texts(folder) == NEW


def test_an_interrupted_update_is_completed_and_keeps_an_edited_old_file(folder: Path) -> None:
    install_skill(OLD, str(folder))
    put(folder, "references/gone.md", "edited\n")
    put(folder, "SKILL.md", NEW["SKILL.md"])  # written by the new version before it was killed
    assert install_skill(NEW, str(folder)).state == "updated"
    assert texts(folder) == {**NEW, "references/gone.md": "edited\n"}


def test_what_was_there_before_any_installation_is_somebodys(folder: Path) -> None:
    put(folder, "SKILL.md", "a skill of my own\n")
    assert install_skill(NEW, str(folder)).state == "edited"
    assert texts(folder) == {"SKILL.md": "a skill of my own\n"}


def test_sums_name_no_file_outside_the_skill(folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim.md"
    victim.write_text("x")
    digest = sha256(b"x").hexdigest()
    for name in ("../../victim.md", "references/../../../victim.md", str(victim)):
        put(folder, SUMS, f"{digest}  {name}\n")
        install_skill(NEW, str(folder))
        assert victim.read_text() == "x"


def test_a_link_in_place_of_a_file_is_replaced_and_what_it_names_is_not(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.md"
    mine.write_text("mine\n")
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to(mine)
    assert install_skill(NEW, str(folder)).state == "edited"
    assert install_skill(NEW, str(folder), force=True).state == "updated"
    assert (mine.read_text(), texts(folder)) == ("mine\n", NEW)


def test_a_link_to_the_skill_itself_is_up_to_date_and_stays_clean(tmp_path: Path) -> None:
    source = tmp_path / "clone"
    for name, text in NEW.items():
        put(source, name, text)
    (tmp_path / "training-monitor").symlink_to(source)
    assert install_skill(NEW, str(tmp_path / "training-monitor")).state == "unchanged"
    assert not (source / SUMS).exists()


def test_the_skill_and_each_page_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill"]) == 0
    assert capsys.readouterr().out == (ROOT / "SKILL.md").read_text()
    for page in (ROOT / "training_monitor" / "agents" / "skill" / "references").iterdir():
        assert main(["skill", page.stem]) == 0
        assert capsys.readouterr().out == page.read_text()
    assert main(["skill", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["text"] == (ROOT / "SKILL.md").read_text() and "restart" in said["pages"]


def test_an_unknown_page_and_options_that_do_not_fit_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "restrat"]) == 2
    assert "expected restart" in capsys.readouterr().err
    for words in (["--force"], ["restart", "--install"]):
        with pytest.raises(SystemExit) as ended:
            main(["skill", *words])
        assert ended.value.code == 2 and "--install" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "expected"),
    [([], {".agents"}), ([".claude"], {".claude"}), ([".agents", ".claude"], {".agents", ".claude"})],
)
def test_it_goes_where_the_agents_of_this_user_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: list[str], expected: set[str]
) -> None:
    for name in there:
        (tmp_path / name).mkdir()
    with patch.dict(os.environ, {"HOME": str(tmp_path)}):
        assert main(["skill", "--install", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {path.name for path in tmp_path.iterdir()} == expected
    folders = {f"{tmp_path}/{name}/skills/training-monitor" for name in expected}
    assert {each["folder"] for each in said["folders"]} == folders
    for each in said["folders"]:
        assert texts(Path(each["folder"])) == read_skill(skill_folder())


@pytest.mark.parametrize("name", ["skills", "skills/", "skills/training-monitor", "skills/training-monitor/"])
def test_a_folder_for_skills_or_the_skills_own_can_be_named(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["skill", "--install", name]) == 0
    found = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("SKILL.md")]
    assert found == ["skills/training-monitor/SKILL.md"]


def test_a_refusal_says_which_files_or_folders_and_what_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put(folder, "SKILL.md", "mine\n")
    assert main(["skill", "--install", str(folder)]) == 1
    said = capsys.readouterr()
    assert not said.out and "SKILL.md" in said.err and "--force" in said.err
    assert main(["skill", "--install", str(folder), "--json"]) == 1
    [told] = json.loads(capsys.readouterr().out)["folders"]
    assert (told["state"], told["files"]) == ("edited", ["SKILL.md"])
    assert main(["skill", "--install", str(folder), "--force"]) == 0
    (tmp_path / "file").write_text("")
    assert main(["skill", "--install", str(tmp_path / "file")]) == 2
    assert "expected a writable folder" in capsys.readouterr().err
