"""What curl brings back from a storage, what the sending job writes down, and lists of parts."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import CommandFailed, SettingsError
from training_monitor.core.models import Reply
from training_monitor.targets.asking import quote_path
from training_monitor.uploads.pieces import (
    MIB,
    MOST_URL_BYTES,
    NO_CURL,
    Piece,
    Response,
    difference,
    format_pieces,
    is_final,
    parse_response,
    parse_sent,
    read_tag,
    request_question,
    split,
)
from training_monitor.uploads.presigned import parse_parts, parse_upload_id, part_size

MD5 = "42d29fbe3e9e2c79e6cfaad94ccfd7cb"
OTHER = "0" * 32
REFUSED = "<Error><Code>SignatureDoesNotMatch</Code><Message>does not match &amp; so on</Message></Error>"


def response(text: str) -> Response:
    return parse_response(Reply(text, 0, 0.1))


class TestResponses:
    def test_the_last_of_several_heads_counts(self) -> None:
        heads = 'HTTP/1.1 100 Continue\n\nHTTP/2 200 \nETag: "abc"\nContent-Length: 5\n\n'
        answer = response(f"{heads}<Body/>\nhttp=200\ncurl=0\n")
        assert (answer.status, answer.ok, answer.body) == (200, True, "<Body/>")
        assert answer.headers == {"etag": '"abc"', "content-length": "5"}
        answer = response("HTTP/1.1 404 Not Found\nServer: x\n\n\nhttp=404\ncurl=0\n")
        assert (answer.status, answer.ok, answer.headers) == (404, False, {"server": "x"})

    def test_a_refusal_says_why(self) -> None:
        answer = response(f"HTTP/1.1 403 Forbidden\n\n{REFUSED}\nhttp=403\ncurl=0\n")
        assert answer.said == "SignatureDoesNotMatch: does not match & so on"
        assert answer.error.startswith("HTTP 403 SignatureDoesNotMatch") and "clock" in answer.error

    def test_no_connection(self) -> None:
        answer = response("curl: (7) Failed to connect to 127.0.0.1 port 1\n\nhttp=000\ncurl=7\n")
        assert (answer.status, answer.error) == (0, "(7) Failed to connect to 127.0.0.1 port 1")

    def test_an_error_behind_a_status_of_200(self) -> None:
        assert not response("HTTP/1.1 200 OK\n\n<Error><Code>InternalError</Code></Error>\nhttp=200\ncurl=0\n").ok

    def test_no_curl(self) -> None:
        with pytest.raises(CommandFailed) as caught:
            response("no-curl\n")
        assert str(caught.value) == NO_CURL

    def test_answers_that_are_none(self) -> None:
        unfinished = ("http=200", "\nhttp=200", "\nhttp=2\ncurl=0", "HTTP/1.1 200", "\nhttp=abc\ncurl=0\n")
        assert [response(text).status for text in ("", "\n", "x" * 100, *unfinished)] == [0] * 8

    def test_the_url_is_not_in_the_representation(self) -> None:
        assert "secret" not in repr(request_question("HEAD", "https://host/k?X-Amz-Signature=secret"))

    def test_which_refusals_are_final(self, subtests: pytest.Subtests) -> None:
        for status, said, final in [
            (403, "AccessDenied", True),
            (404, "", True),
            (403, "Request has expired", False),
            (400, "ExpiredToken", False),
            (400, "RequestTimeout: idle", False),
            (408, "", False),
            (429, "SlowDown", False),
            (503, "", False),
            (0, "refused", False),
        ]:
            with subtests.test(status=status, said=said, final=final):
                assert is_final(status, said) is final

    def test_no_entity_is_expanded(self) -> None:
        assert read_tag("<!DOCTYPE x [<!ENTITY a 'b'>]><Code>&a;</Code>", "Code") == "&a;"


class TestPieces:
    def test_what_was_written_down(self) -> None:
        sent = parse_sent(
            f"piece 1 md5={MD5} http=503 curl=0 kms= etag= said=SlowDown \n"
            f"piece 1 md5={MD5} http=200 curl=0 kms= etag={MD5} said= \n"
            f"piece 2 md5={MD5} http=200 curl=0 kms= etag={OTHER} said= \n"
            f"piece 3 md5={MD5} http=200 curl=0 kms=yes etag={OTHER} said= \n"
            f"piece 4 md5= http=200 curl=0 kms= etag={MD5} said= \n"
            f"piece 5 md5={MD5} http=200 curl=56 kms= etag={MD5} said=(56) reset\n"
            "piece 6 md5=\n"
            "piece x\n"
        )
        found = [(each.ok, each.comparable) for each in sent.values()]
        assert found == [(True, True), (False, True), (True, False), (True, False), (False, True)]
        assert sent[2].error.startswith("the storage holds a different object")
        assert sent[5].error == "(56) reset"

    def test_the_parts_cover_the_file(self) -> None:
        pieces = split(11 * MIB + 7, 5 * MIB)
        assert [piece.number for piece in pieces] == [1, 2, 3]
        assert sum(piece.size_bytes for piece in pieces) == 11 * MIB + 7
        assert [(piece.skip, piece.count) for piece in pieces] == [(0, 5), (5, 5), (10, 5)]

    @pytest.mark.parametrize("size", [1, 5 * 1024**3 + 1, 64 * MIB * 1000, 64 * MIB * 1000 + 1, 5 * 1024**4])
    def test_at_most_a_thousand_parts_of_whole_mib(self, size: int) -> None:
        each = part_size(size)
        assert each % MIB == 0 and 64 * MIB <= each <= 6 * 1024**3 and -(-size // each) <= 1000

    def test_as_many_urls_as_fit(self) -> None:
        piece = Piece(1, 0, 5, 5 * MIB)
        lines = format_pieces((piece, "https://host/" + "x" * 1500) for _ in range(1000))["TM_PIECES"].splitlines()
        assert 40 < len(lines) < MOST_URL_BYTES // 1500
        assert len(format_pieces([(piece, "https://host/" + "x" * 90_000)])["TM_PIECES"].splitlines()) == 1


class TestLists:
    def test_parts(self) -> None:
        text = (
            "<ListPartsResult><Part><PartNumber>1</PartNumber><ETag>&quot;abc&quot;</ETag><Size>5</Size></Part>\n"
            f'<Part><Size>7</Size>\n<ETag>"{MD5}"</ETag><PartNumber>12</PartNumber></Part>'
            "<Part><PartNumber>x</PartNumber><Size>1</Size></Part><Part></Part><Part>"
        )
        assert parse_parts(text) == {1: ("abc", 5), 12: (MD5, 7)}

    def test_the_newest_upload_of_exactly_this_key(self) -> None:
        def upload(key: str, number: str) -> str:
            return f"<Upload><Key>{key}</Key><UploadId>{number}</UploadId></Upload>"

        text = upload("a&amp;b", "1") + upload("a&amp;b", "2") + upload("a&amp;b/c", "3")
        assert parse_upload_id(text, "a&b") == "2"
        assert parse_upload_id(text, "a") is None and parse_upload_id("", "a") is None


class TestDifferences:
    def test_what_is_held(self, subtests: pytest.Subtests) -> None:
        for held, problem in [
            (Response(200, {"content-length": "5", "etag": f'"{MD5}"'}), None),
            (Response(200, {"content-length": "4", "etag": f'"{MD5}"'}), "4 of 5 bytes"),
            (Response(200, {"content-length": "5", "etag": f'"{OTHER}"'}), "a different object"),
            (Response(200, {}), "? of 5 bytes"),
            (Response(404), "does not have the object"),
            (Response(500, said="oops"), "could not be checked: HTTP 500 oops"),
        ]:
            with subtests.test(held=held, problem=problem):
                found = difference(held, 5, MD5)
                assert found is None if problem is None else problem in (found or "")

    def test_without_an_etag_the_size_tells(self) -> None:
        assert difference(Response(200, {"content-length": "5", "etag": '"x"'}), 5, None) is None


@pytest.mark.parametrize(
    ("path", "word"), [("/a b", "'/a b'"), ("-x", "./-x"), ("~/a'b", "\"$HOME\"/'a'\"'\"'b'"), ("$(x)\n", "'./$(x)\n'")]
)
def test_paths_are_one_word_and_no_option(path: str, word: str) -> None:
    assert quote_path(path) == word
    for none in ("", "a\0b"):
        with pytest.raises(SettingsError):
            quote_path(none)
