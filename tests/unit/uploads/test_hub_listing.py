"""What an upload to the hub wrote down, and what hf says when it fails: recorded from three versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.outcomes import UploadedFile
from training_monitor.uploads.hugging_face import parse_listing, upload_to_hugging_face

RECORDED = Path(__file__).parents[2] / "recorded" / "hf"
VERSIONS = ("0.24.6", "0.34.4", "2.4.0")
FAILURES = {
    "wrong_token": (True, "401"),
    "may_not_create": (True, "rights to create a model"),
    "may_not_write": (True, "rights to write to this repo"),
    "no_such_option": (True, "--nonsense"),
    "server_error": (False, "500"),
    "connection_refused": (False, "Connection refused"),
}


def row(path: str, size: int = 5, sum_: str = "abc", held: object = "same") -> str:
    here = {"size": size, "hash": sum_}
    more = {} if held is None else {"held": here if held == "same" else held}
    return json.dumps({"path": path, **here, **more}) + "\n"


def test_what_hf_says_when_it_fails(subtests: pytest.Subtests) -> None:
    for version in VERSIONS:
        for name in FAILURES:
            with subtests.test(version=version, name=name):
                final, said = FAILURES[name]
                listing = parse_listing("upload-failed 1\n", (RECORDED / version / f"{name}.txt").read_text("utf-8"))
                assert listing.error is not None and listing.error.startswith("it was not uploaded: ")
                assert said in listing.error and listing.final is final
                assert "\x1b" not in listing.error and "Traceback" not in listing.error and len(listing.error) < 2000


def test_everything_arrived() -> None:
    listing = parse_listing(row("a") + row("b\nc") + "listed\n")
    assert listing.error is None
    assert listing.files == (UploadedFile("a", 5, "abc"), UploadedFile("b\nc", 5, "abc"))
    assert parse_listing("listed\n").error == "no file to upload"


def test_what_is_missing_or_differs(subtests: pytest.Subtests) -> None:
    for held in [None, {}, {"size": 4, "hash": "abc"}, {"size": 5, "hash": "abd"}, "x", [], 5]:
        with subtests.test(held=held):
            listing = parse_listing(row("a") + row("b", held=held) + "listed\n")
            assert listing.error == "1 of 2 files are missing from the hub or differ there: b"
            assert [file.path for file in listing.files] == ["a"] and not listing.final


def test_not_all_are_named() -> None:
    listing = parse_listing("".join(row(f"{n}" * 200, held=None) for n in range(9)) + "listed\n")
    assert (listing.error or "").endswith(", ...") and len(listing.error or "") < 500


@pytest.mark.parametrize("state", ["no-token", "no-tool", "no-python", "denied", "disk-full"])
def test_what_trying_again_does_not_heal(state: str) -> None:
    assert parse_listing(f"{state}\n").final


@pytest.mark.parametrize("text", ["", "\n", row("a"), "unlisted\n", "nonsense\n", '{"path": \n', "upload-failed 137\n"])
def test_an_unfinished_try(text: str) -> None:
    listing = parse_listing(text)
    assert listing.error is not None and listing.files == () and not listing.final


@pytest.mark.parametrize(
    "line", ['{"path"', "{" * 5000, '{"path": "a", "size": "5", "hash": 3}', '{"path": "\\udcff"}']
)
def test_broken_lines_are_files_that_did_not_arrive(line: str) -> None:
    error = parse_listing(f"{line}\n{row('b')}listed\n").error or ""
    assert error.startswith("1 of 2 files are missing") and error.encode()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("repo_id", ["name", "a/b/c", "-a/b", "a/b c"]),
        ("token_env", ["hf_abcdefghijk lmn", "A;rm"]),
        ("path_in_repo", ["../x", "/x", ""]),
        ("revision", [""]),
    ],
)
def test_wrong_arguments(name: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(SettingsError):
            upload_to_hugging_face("local", "/x", **{"repo_id": "me/model", name: value})  # type: ignore[arg-type]
