"""Listings of folders: what is read, and what a hostile one cannot make us believe."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.rent.file_lists import (
    MOST_FILES,
    PARTIAL,
    FileList,
    ListedFile,
    find_name_problem,
    is_inside,
    parse_file_list,
    split_batches,
)

HEAD = "state=folder\nroot=/data\n"


def listing(*lines: str) -> FileList:
    found = parse_file_list(HEAD + "\n".join(lines))
    assert found is not None
    return found


def test_a_listing_has_files_tools_and_what_is_in_the_way() -> None:
    found = listing(
        "tool rsync",
        "tool tar",
        "file 12 1700000000 ./a b",
        "file 0 -5 ./sub/ it's \t\r\u2028",
        f"file 7 1700000000 ./sub/{PARTIAL}/big",
        f"file 9 1700000000 ./{PARTIAL}/incoming/big.x1Y2z3",
        "other ./link",
        "refused ./two?lines?",
        "said find: ./private: Permission denied",
    )
    assert found == FileList(
        "/data",
        {"a b": ListedFile(12, 1700000000), "sub/ it's \t\r\u2028": ListedFile(0, -5)},
        frozenset({"link"}),
        ("'./two?lines?'",),
        7,
        frozenset({"rsync", "tar"}),
        False,
        "find: ./private: Permission denied",
    )


def test_a_missing_folder_is_none_and_an_empty_one_is_not() -> None:
    assert parse_file_list("state=missing") is None
    assert listing() == FileList("/data", {})


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["", "sh: not found", "file 1 1 ./a"], "no listing"),
        (["state=it cannot be entered: Permission denied"], "Permission denied"),
        (["state=folder", "state=folder\nfile 1 1 ./a"], "not valid UTF-8"),
        ([f"state=folder\nroot={root}" for root in ("", "relative", "-e evil", "/not \ufffd text")], "not valid UTF-8"),
    ],
)
def test_what_is_no_listing_is_an_error_and_never_an_empty_folder(texts: list[str], said: str) -> None:
    for text in texts:
        with pytest.raises(ParseError, match=said):
            parse_file_list(text)


OUTSIDE = ("./../a", "./a/../../b", ".//etc/passwd", "/etc/passwd", "./a//b", "./a/.", "./.ssh/authorized_keys")
FORGED = ("file 1 1", "file -1 1 ./a", "file 1e3 1 ./a", "file 1 now ./a", "file ٣ 1 ./a", "what is this")


@pytest.mark.parametrize(
    "line",
    [
        *(f"file 1 1 {name}" for name in (*OUTSIDE, "./a/.hidden", "./a\0b", "./")),
        *FORGED,
        "file 9999999999999999999 1 ./a",
        "other ./../a",
        "other /etc",
        "file 1 1 ./a\nfile 1 1 ./a/b",
    ],
)
def test_a_forged_line_or_outside_name_refuses_the_whole_listing(line: str) -> None:
    with pytest.raises(ParseError):
        listing(line)


def test_a_name_that_is_no_utf8_is_refused_by_itself() -> None:
    found = listing("file 1 1 ./caf\ufffd", "file 1 1 ./good")
    assert list(found.files) == ["good"] and found.refused == (r"'caf\ufffd'",)


def test_too_many_files_are_an_error() -> None:
    with pytest.raises(ParseError, match="more than"):
        listing(*(f"file 1 1 ./{number}" for number in range(MOST_FILES + 1)))


def test_errors_show_hostile_names_escaped_and_cut() -> None:
    with pytest.raises(ParseError) as caught:
        listing("file 1 1 ./../\x1b[2J" + "x" * 3000)
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["a", "-rf", "a b", "训练", "a/b", "*", "a\\n", "..a", "a.."])
def test_plain_and_odd_names_can_be_copied(name: str) -> None:
    assert find_name_problem(name) is None
    assert is_inside(name) is (name != "..a")


@pytest.mark.parametrize("name", ["a\nb", "\udce9", "\ufffd", "x" * 5000])
def test_names_that_a_listing_cannot_show_cannot_be_copied(name: str) -> None:
    assert find_name_problem(name)


def test_batches_are_bounded_and_a_large_file_is_one_of_its_own() -> None:
    files = {name: ListedFile(size, 0) for name, size in {"d": 50, "a": 40, "b": 40, "c": 500, "e": 1}.items()}
    assert list(split_batches(files, most_files=2, most_bytes=100)) == [["a", "b"], ["c"], ["d", "e"]]
    assert list(split_batches(files, most_files=1, most_bytes=1000)) == [[name] for name in "abcde"]
    assert list(split_batches({}, most_files=1, most_bytes=1)) == []
