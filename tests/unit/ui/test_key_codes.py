from __future__ import annotations

import random

import pytest

from training_monitor.ui.kit.terminal import decode_keys

# What is sent after ESC for one key, and its name.
KEYS = {
    "up": "[A OA [1;2A",
    "down": "[B OB",
    "right": "[C OC [1;5C",
    "left": "[D OD [1;16D O5D",
    "home": "[H OH [1~ [7~ [1;3H",
    "end": "[F OF [4~ [8~",
    "page-up": "[5~ [5;5~",
    "page-down": "[6~",
    "insert": "[2~",
    "backspace": "[3~ [3;2~",
    "shift-tab": "[Z",
    "enter": "OM",
    "click 0 0": "[<0;1;1M",
    "click 299 99": "[<0;300;100M",
    "click 11 2": "[<16;12;3M",
    "wheel-up": "[<64;10;20M [<68;10;20M",
    "wheel-down": "[<65;10;20M",
}
NO_KEYS = (
    # function keys, the keypad, the Windows and menu keys, of xterm and of the Linux console
    "OP OS Op Oj [15~ [24;2~ [1;5P [[A [[E [29~ [E "
    # bracketed paste, focus, answers of a terminal, keys of other protocols
    "[200~ [201~ [I [O [?1;2c [>41;388;0c [24;80R [?2004;1$y [97;5u [27;5;9~ [;;;A [1;5;5C [111C [<C "
    # the mouse
    "[<0;1;1m [<1;5;5M [<2;5;5M [<32;5;5M [<35;5;5M [<64;10;20m [<66;10;20M [<128;10;20M [<0;0;0M [<0;-1;5M [<0;5M "
    "[<0;1;2;3M [<;;M [<0;999999;1M [<0;1;1X [32;10;20M"
)
SEQUENCES: dict[bytes, list[str]] = {
    **{b"\x1b" + sent.encode(): [name] for name, sequences in KEYS.items() for sent in sequences.split()},
    **{b"\x1b" + sent.encode(): [] for sent in NO_KEYS.split()},
    **dict.fromkeys((b"\x1b[ q", b"\x1b[M !!", b"\x1b[M\x60\xff\xfe"), []),
}
CHARACTERS = {text.encode(): [text] for text in "aZ09 ?!~[O\x7eé€ß中😀\u0301\u200d\ufeff\U0010ffff"}


CONTROLS = {
    **{b"\t": ["tab"], b"\r": ["enter"], b"\n": ["enter"], b"\x7f": ["backspace"], b"\b": ["backspace"]},
    **{b"\x01": ["ctrl-a"], b"\x0c": ["ctrl-l"], b"\x15": ["ctrl-u"], b"\x1a": ["ctrl-z"]},
    **{b"\x00": [], b"\x1c": [], b"\x1f": []},
}


ALL = {**SEQUENCES, **CHARACTERS, **CONTROLS}
ODD = {b"\x1bA": "up", b"\x1b[1~": "end", b"\x1bxyz": "left", b"\x1b[$9": "right"}  # keys of a terminal of its own kind


def decoded(data: bytes) -> list[str]:
    """What is told when all came at once, and nothing after it."""
    names, rest = decode_keys(data, is_over=True)
    assert rest == b""
    return names


def fed(*pieces: bytes) -> tuple[list[str], bytes]:
    """What is told of pieces that come one after the other, and what is kept."""
    names: list[str] = []
    rest = b""
    for piece in pieces:
        more, rest = decode_keys(rest + piece, is_over=False)
        names += more
    return names, rest


def test_each_key_has_its_name_whole_and_in_parts(subtests: pytest.Subtests) -> None:
    for data, names in ALL.items():
        with subtests.test(data=data, names=names):
            assert decode_keys(data, is_over=False) == (names, b"")
            assert decoded(data) == names
            for cut in range(1, len(data)):
                assert decode_keys(data[:cut], is_over=False) == ([], data[:cut])
                assert fed(data[:cut], data[cut:]) == (names, b"")
            assert fed(*(data[place : place + 1] for place in range(len(data)))) == (names, b"")


def test_esc_before_what_is_no_sequence_is_a_key_of_its_own() -> None:
    for data, names in [
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b", ["escape", "escape"]),
        (b"\x1bx", ["escape", "x"]),
        (b"\x1bq?!", ["escape", "q", "?", "!"]),
        (b"q?!\x1b", ["q", "?", "!", "escape"]),
        (b"\x1b\r", ["escape", "enter"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\x1b[", ["escape", "["]),
        (b"\x1bO", ["escape", "O"]),
        (b"\x1b[\r", ["escape", "[", "enter"]),
        (b"\x1b[\x1b", ["escape", "[", "escape"]),
        (b"\x1bO\x1b[B", ["escape", "O", "down"]),
        ("\x1bé".encode(), ["escape", "é"]),
        ("\x1b[é".encode(), ["escape", "[", "é"]),
        (b"\x1b]0;x\x07", ["escape", "]", "0", ";", "x", "ctrl-g"]),
    ]:
        assert decoded(data) == names, data
    assert decode_keys(b"\x1bx", is_over=False) == (["escape", "x"], b"")
    assert decode_keys(b"\x1b\x1b", is_over=False) == (["escape"], b"\x1b")


def test_a_sequence_that_is_cut_off_is_swallowed(subtests: pytest.Subtests) -> None:
    for sent in [b"[1", b"[1;5", b"[<0;12", b"[ ", b"[M", b"[M !", b"[[", b"O5", b"[?"]:
        with subtests.test(sent=sent):
            data = b"\x1b" + sent
            assert decoded(data) == []
            assert decoded(data + b"\x1b[A") == ["up"]
            assert decoded(data + b"\r") == ["enter"]


def test_broken_characters_are_dropped(subtests: pytest.Subtests) -> None:
    for data, names in [
        *((data, []) for data in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80")),
        (b"\x80x", ["x"]),
        (b"\xc3\xc3\xa9", ["é"]),
        (b"\xe2\x82\xff\xe2\x82\xac", ["€"]),
        (b"\xf0\x9f\x98q", ["q"]),
        (b"\xe2\x82\x1b[A", ["up"]),
        (b"\xe2\x1b", ["escape"]),
    ]:
        with subtests.test(data=data, names=names):
            assert decoded(data) == names
            one_by_one = fed(*(data[place : place + 1] for place in range(len(data))))[0]
            assert one_by_one == [name for name in names if name != "escape"]


def test_a_sequence_without_end_is_swallowed_and_little_of_it_is_kept(subtests: pytest.Subtests) -> None:
    for kind in [b"0", b"1;", b"<0;", b"!", b";", b"?\x20"]:
        with subtests.test(kind=kind):
            rest = b"\x1b[" + kind
            for _ in range(1000):
                names, rest = decode_keys(rest + kind[-1:] * 97, is_over=False)
                assert names == [] and len(rest) <= 32
            assert decode_keys(rest + b"Cx", is_over=False) == (["x"], b"")
            assert decode_keys(rest, is_over=True) == ([], b"")


def test_much_text_at_once_is_told_whole_and_no_bytes_are_no_keys() -> None:
    for begin in (b"\x1b[1;5", b"\x1b[<0;1;1", b"\x1b[1"):
        assert decoded(begin + b"0" * 100_000 + b"C") == []
        assert decoded(begin + b";1" * 100_000 + b"Mq") == ["q"]
    text = "a😀é\t" * 5000
    assert decoded(text.encode()) == ["a", "😀", "é", "tab"] * 5000
    assert decoded(b"\x1b" * 5000) == ["escape"] * 5000
    assert decoded(b"\x1b[" * 5000) == ["escape", "["] * 5000
    assert decoded(b"\xf0" * 5000) == []
    assert decode_keys(b"", is_over=False) == decode_keys(b"", is_over=True) == ([], b"")


def test_random_bytes_are_told_alike_whole_and_in_pieces() -> None:
    chance = random.Random(11)
    likely = b"\x1b\x1b\x1b[[O<M;;0123456789~ACDmM!\xc3\xa9\xf0\x9f\x98\x80q?\r\x00"
    for _ in range(1000):
        data = bytes(chance.choice((chance.randrange(256), chance.choice(likely))) for _ in range(chance.randrange(24)))
        whole, rest = decode_keys(data, is_over=False)
        cuts = sorted(chance.choices(range(len(data) + 1), k=4))
        assert fed(*(data[first:last] for first, last in zip([0, *cuts], [*cuts, len(data)]))) == (whole, rest)
        assert all(whole) and data.endswith(rest)
        assert decoded(data) == whole + decoded(rest)


@pytest.mark.parametrize(("data", "name"), ODD.items())
def test_the_sequences_of_a_terminal_go_before_all_others(data: bytes, name: str) -> None:
    for cut in range(len(data)):
        names, rest = decode_keys(data[:cut], is_over=False, known=ODD)
        assert (names, rest) == ([], data[:cut])
        assert decode_keys(rest + data[cut:] + b"j", is_over=False, known=ODD) == ([name, "j"], b"")


def test_what_only_begins_like_a_sequence_of_a_terminal_is_told_as_what_it_is() -> None:
    assert decode_keys(b"\x1bxq", is_over=False, known=ODD) == (["escape", "x", "q"], b"")
    assert decode_keys(b"\x1bxy", is_over=False, known=ODD) == ([], b"\x1bxy")
    assert decode_keys(b"\x1bxy", is_over=True, known=ODD) == (["escape", "x", "y"], b"")
    assert decode_keys(b"\x1b[B", is_over=False, known=ODD) == (["down"], b"")
