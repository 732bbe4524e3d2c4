"""Links and special files in a dataset folder: each is copied or refused by name, none is dropped."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from training_monitor.core.errors import SettingsError
from training_monitor.rent.file_lists import list_folder
from training_monitor.rent.worker import check_request
from training_monitor.vast.training_request import TrainingRequest

Make = Callable[[Path, Path], object]  # an entry, with a folder that is outside of the dataset


def bind(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


REFUSED: dict[str, tuple[Make, str]] = {
    "a folder of the dataset": (lambda entry, out: entry.symlink_to(entry.parent), "a link to a folder"),
    "the dataset itself": (lambda entry, out: entry.symlink_to("."), "a link to a folder"),
    "the folder above": (lambda entry, out: entry.symlink_to(".."), "a link to a folder"),
    "the whole disk": (lambda entry, out: entry.symlink_to("/"), "a link to a folder"),
    "a folder outside": (lambda entry, out: entry.symlink_to(out), "a link to a folder"),
    "a key": (lambda entry, out: entry.symlink_to(out / ".ssh" / "id_ed25519"), "hidden"),
    "a link to a key": (lambda entry, out: entry.symlink_to(out / "way"), "hidden"),
    "a hidden file": (lambda entry, out: entry.symlink_to(out / ".netrc"), "hidden"),
    "the environment": (lambda entry, out: entry.symlink_to("/proc/self/environ"), "system"),
    "a device": (lambda entry, out: entry.symlink_to("/dev/zero"), "device"),
    "nowhere": (lambda entry, out: entry.symlink_to("gone"), "cannot be followed"),
    "itself": (lambda entry, out: entry.symlink_to(entry.name), "cannot be followed"),
    "a socket": (lambda entry, out: bind(entry), "a socket"),
    "a pipe": (lambda entry, out: os.mkfifo(entry), "a pipe"),
}
FOLLOWED: dict[str, Make] = {
    "a file of the dataset": lambda entry, out: entry.symlink_to(entry.parent / "plain"),
    "a file outside": lambda entry, out: entry.symlink_to(out / "shared"),
    "a link to a file outside": lambda entry, out: entry.symlink_to(out / "again"),
    "a hard link": lambda entry, out: os.link(out / "shared", entry),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / ".ssh").mkdir(parents=True)
    for name in (".ssh/id_ed25519", ".netrc", "shared"):
        (folder / name).write_text("text")
    (folder / "way").symlink_to(".ssh/id_ed25519")
    (folder / "again").symlink_to("shared")
    return folder


@pytest.fixture(params=["at the top", "deep below"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of the dataset, which has a plain file."""
    folder = tmp_path / "dataset" if request.param == "at the top" else tmp_path / "dataset" / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "plain").write_text("plain")
    return folder


def test_an_entry_that_cannot_be_copied_is_refused_by_name(place: Path, outside: Path, tmp_path: Path) -> None:
    """Before anything is rented, and all of them at once."""
    for number, (make, _) in enumerate(REFUSED.values()):
        make(place / f"entry {number}", outside)
    with pytest.raises(SettingsError) as caught:
        check_request(TrainingRequest("demo", str(tmp_path / "dataset"), command="train"))
    said = str(caught.value).partition("these cannot: ")[2].split("; ")
    below = (place / "entry").relative_to(tmp_path / "dataset")
    for number, (name, (_, why)) in enumerate(REFUSED.items()):
        [told] = [each for each in said if each.startswith(f"{below} {number} is ")]
        assert why in told, (name, told)
        tried()
    assert len(said) == len(REFUSED)


def test_a_link_to_a_file_is_copied_as_that_file(place: Path, outside: Path, tmp_path: Path) -> None:
    for name, make in FOLLOWED.items():
        make(place / name, outside)
    files = list_folder(str(tmp_path / "dataset")).files
    for name in FOLLOWED:
        found = files[str((place / name).relative_to(tmp_path / "dataset"))]
        assert found.size == (place / name).stat().st_size
        tried()


def test_a_dataset_below_a_hidden_folder_may_link_to_its_neighbours(tmp_path: Path) -> None:
    """As the cache of the hub does, in which a snapshot consists of links."""
    blobs, snapshot = tmp_path / ".cache" / "hub" / "blobs", tmp_path / ".cache" / "hub" / "snapshots" / "1"
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True)
    (blobs / "a1").write_text("picture")
    (snapshot / "one.png").symlink_to("../../blobs/a1")
    assert list_folder(str(snapshot)).files["one.png"].size == len("picture")


def test_hidden_entries_and_empty_folders_are_counted(place: Path) -> None:
    (place / ".git").mkdir()
    (place / ".env").write_text("x")
    (place / "empty").mkdir()
    found = list_folder(str(place))
    assert (found.hidden, found.empty, set(found.files)) == (2, ("empty",), {"plain"})
