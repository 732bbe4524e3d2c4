"""What the instances module makes of the outputs of vastai: those recorded from 1.9.1, and those of older versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock, FakeTransport, Program
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    CommandTimedOut,
    SettingsError,
    TargetUnreachable,
)
from training_monitor.core.results import CommandResult
from training_monitor.vast.instances import (
    APART_SECONDS,
    GONE_SECONDS,
    MOST_PAGES,
    Destruction,
    destroy_instance,
    find_instance,
    list_instances,
    list_instances_at_once,
)

RECORDED = Path(__file__).parents[2] / "recorded" / "vastai" / "1.9.1"
Said = tuple[int, str, str]  # exit code, stdout, stderr

ASKED = "Are you sure you want to destroy instance 7? This is irreversible and will delete all data. [y/N] "
UNKNOWN_OPTION = "usage: vast.py [-h]\nvast.py: error: unrecognized arguments: "


def recorded(name: str) -> Said:
    head, _, rest = (RECORDED / f"{name}.txt").read_text(encoding="utf-8").partition("\nstdout: ")
    stdout, _, stderr = rest.rpartition("\nstderr: ")
    return int(head.rpartition("exit status: ")[2]), stdout, stderr


def page(*numbers: int, **details: Any) -> Said:
    return 0, json.dumps({"instances": [{"id": number} for number in numbers], "next_token": None, **details}), ""


class Cli:
    """A vastai that says what it is told; `destroyed` takes instance 7 out of the list, as a destroy does."""

    def __init__(self, *listings: Said) -> None:
        self.listings = list(listings)  # the last one for ever
        self.numbers = [6, 7, 8]
        self.on_destroy: Callable[[tuple[str, ...], str | None], Said] = lambda words, said: self.destroyed()
        self.calls: list[tuple[str, ...]] = []
        self.transport = FakeTransport(lambda script: ("", 127))
        for words, act in (
            (("show", "instances", "--raw"), lambda argv, typed: self.show(argv)),
            (("show", "instance"), lambda argv, typed: self.show_one(argv)),
            (("destroy", "instance"), lambda argv, typed: self.on_destroy(argv, typed)),
        ):
            self.transport.register(["vastai", *words], self._recorded(act))

    def destroyed(self) -> Said:
        if 7 not in self.numbers:
            return 0, "", "Failed with error 404: Instance 7 not found"
        self.numbers.remove(7)
        return 0, "destroying instance 7.\n", ""

    def show_one(self, words: tuple[str, ...]) -> Said:
        row = {"id": int(words[3])} if int(words[3]) in self.numbers else {"instances": None}
        return 0, json.dumps(row), ""

    def show(self, words: tuple[str, ...]) -> Said:
        if not self.listings:
            return page(*self.numbers)
        return self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]

    def _recorded(self, act: Callable[[tuple[str, ...], str | None], Said]) -> Program:
        def run(words: tuple[str, ...], typed: str | None) -> CommandResult:
            self.calls.append(words)
            return CommandResult(words, *act(words, typed), 0.1)

        return run

    def destroys(self) -> list[tuple[str, ...]]:
        return [words for words in self.calls if words[1] == "destroy"]


class OldCli(Cli):
    """A version that knows neither pages nor -y, and asks."""

    def __init__(self) -> None:
        super().__init__()
        self.on_destroy = self.asks

    def show(self, words: tuple[str, ...]) -> Said:
        if len(words) > 4:
            return 2, "", UNKNOWN_OPTION + " ".join(words[4:])
        return 0, json.dumps([{"id": number} for number in self.numbers]), ""

    def asks(self, words: tuple[str, ...], said: str | None) -> Said:
        if "-y" in words:
            return 2, "", UNKNOWN_OPTION + "-y\n"
        return (0, ASKED + self.destroyed()[1], "") if said == "y\n" else (0, f"{ASKED}\nAborted.\n", "")


def ids(*listings: Said) -> list[int]:
    return [row["id"] for row in list_instances(transport=Cli(*listings).transport)]


def failure(cli: Cli, clock: FakeClock | None = None) -> CommandError:
    with pytest.raises(CommandError) as caught:
        destroy_instance("7", transport=cli.transport, clock=clock or FakeClock())
    return caught.value


# ---------------------------------------------------------------- the list

DENIED = ("page_wrong_key", "page_403", "page_no_key", "page_answer_html401", "page_answer_list401")
UNKNOWN = ("page_404", "page_429", "page_500", "page_502", "page_down", "list_null_start_date")
GARBAGE = ("html", "empty", "refused", "refused_empty", "null", "list", "instances_null")


@pytest.mark.parametrize("name", [*DENIED, "page_tfa_ended_no_key", "older"])
def test_a_key_that_is_refused_is_access_denied_not_an_empty_account(name: str) -> None:
    older = (0, "failed with error 401: Invalid user key\n", "")
    cli = Cli(older if name == "older" else recorded(name))
    with pytest.raises(AccessDenied, match="vastai set api-key"):
        list_instances(transport=cli.transport)
    assert type(failure(cli)) is AccessDenied


@pytest.mark.parametrize("name", [*UNKNOWN, *(f"page_answer_{each}" for each in GARBAGE)])
def test_a_failing_service_is_unreachable_not_an_empty_account(name: str) -> None:
    cli = Cli(recorded(name))
    with pytest.raises(TargetUnreachable):
        list_instances(transport=cli.transport)
    assert type(failure(cli)) is TargetUnreachable


@pytest.mark.parametrize(
    "said",
    [
        (1, page()[1], "Traceback"),
        (0, page()[1][:-1], ""),
        *((0, json.dumps({"instances": rows}), "") for rows in (["7"], [{"label": "7"}], [{"id": None}])),
        *((0, json.dumps({"instances": rows}), "") for rows in ([{"id": "7"}], {"7": {}})),
        *((0, json.dumps({"instances": [], **more}), "") for more in ({"next_token": 5}, {"success": None})),
        (0, "[" * 100_000, ""),
        (0, "0", ""),
        page(1, total_instances=3),  # fewer than the account has
    ],
)
def test_an_answer_of_another_form_is_no_list(said: Said) -> None:
    with pytest.raises(TargetUnreachable):
        list_instances(transport=Cli(said).transport)


@pytest.mark.parametrize(
    ("pages", "listed"),
    [
        ([recorded("page_none")], []),
        ([recorded("page_first"), recorded("page_last")], [1, 2, 3]),
        ([recorded("page_null_start_date")], [1, 2, 3]),
        ([page(1, 2, next_token="more"), page(2, 3)], [1, 2, 3]),  # one is on both pages
        # one goes between two pages
        ([page(1, 2, next_token="more", total_instances=4), page(3, total_instances=3)], [1, 2, 3]),
    ],
)
def test_all_pages_are_one_list(pages: list[Said], listed: list[int]) -> None:
    assert ids(*pages) == listed


def test_the_next_page_is_asked_for_by_its_token() -> None:
    cli = Cli(recorded("page_first"), recorded("page_last"))
    list_instances(transport=cli.transport)
    assert cli.calls[1][-1] == "--next-token=eyJ2YWx1ZXMiOiB7ImlkIjogMn19"


@pytest.mark.parametrize(
    ("pages", "asked", "problem"),
    [
        ([page(1, next_token="more"), recorded("page_500")], 2, "HTTP 500"),
        ([page(1, next_token="a"), page(2, next_token="b"), page(3, next_token="a")], 3, "too many pages"),
        ([page(n, next_token=f"{n}") for n in range(MOST_PAGES + 1)], MOST_PAGES, "too many pages"),
    ],
    ids=["one fails", "in a circle", "without end"],
)
def test_pages_that_fail_or_never_end_are_no_list(pages: list[Said], asked: int, problem: str) -> None:
    cli = Cli(*pages)
    with pytest.raises(TargetUnreachable, match=problem):
        list_instances(transport=cli.transport)
    assert len(cli.calls) == asked


def test_a_2fa_session_that_ended_is_followed_by_the_list_with_the_other_key() -> None:
    cli = Cli(recorded("page_tfa_ended"), page(3))
    assert list_instances(transport=cli.transport) == [{"id": 3}]
    assert len(cli.calls) == 2 and cli.calls[0] == cli.calls[1]


def found(cli: Cli, number: str = "7", clock: FakeClock | None = None) -> object:
    return find_instance(number, transport=cli.transport, clock=clock or FakeClock())


def test_an_instance_is_known_by_its_whole_number() -> None:
    cli = Cli(page(70, 17, 8))
    cli.numbers = [70, 17, 8]
    assert found(cli, "7") is None
    assert found(cli, "8") == found(cli, "08") == {"id": 8}


def test_gone_is_what_two_answers_some_seconds_apart_do_not_know() -> None:
    cli, clock = Cli(), FakeClock()
    cli.numbers = [6]
    assert found(cli, clock=clock) is None
    assert [words[2] for words in cli.calls] == ["instance", "instances"] and clock.elapsed == APART_SECONDS


@pytest.mark.parametrize("listing", [page(), page(6), page(6, total_instances=1)])
def test_a_listing_that_lacks_an_instance_proves_nothing_alone(listing: Said) -> None:
    assert found(Cli(listing)) == {"id": 7}
    cli = Cli()
    cli.show_one = lambda words: (0, '{"instances": null}', "")  # type: ignore[method-assign]
    assert found(cli) == {"id": 7}, "nor does a show that lacks it"


@pytest.mark.parametrize("listing", ["page_429", "page_500", "page_answer_empty", "page_answer_null"])
def test_without_a_listing_gone_is_unknown(listing: str) -> None:
    cli = Cli(recorded(listing))
    cli.numbers.remove(7)
    with pytest.raises(TargetUnreachable):
        found(cli)


def test_a_show_that_fails_tells_gone_only_by_an_older_versions_traceback() -> None:
    cli, said = Cli(page(6, 8)), {"error": "unsupported operand"}
    cli.show_one = lambda words: (1, "", f"Traceback\nTypeError: {said['error']}")  # type: ignore[method-assign]
    with pytest.raises(TargetUnreachable):
        found(cli)
    said["error"] = "'NoneType' object is not subscriptable"
    assert found(cli) is None


@pytest.mark.parametrize("instance_id", ["", "7x", "-1", " 7", "1_000", "vast://7", "٧", "all", "7.0", "9" * 19])
def test_what_is_no_number_is_refused_before_it_could_pass_for_destroyed(instance_id: str) -> None:
    cli = Cli()
    for ask in (destroy_instance, find_instance):
        with pytest.raises(SettingsError):
            ask(instance_id, transport=cli.transport)
    assert cli.calls == []


# ---------------------------------------------------------------- destroy


@pytest.mark.parametrize("written", ["7", "007"])
def test_destroyed_needs_an_acknowledgement_and_two_empty_listings(written: str) -> None:
    cli, clock = Cli(), FakeClock()
    assert destroy_instance(written, transport=cli.transport, clock=clock) == Destruction(7, acknowledged=True)
    assert [words[1:3] for words in cli.calls] == [("destroy", "instance"), ("show", "instance"), ("show", "instances")]
    assert cli.destroys() == [("vastai", "destroy", "instance", "7", "-y", "--retry", "1")]
    assert cli.numbers == [6, 8]


def test_a_destroy_is_sent_even_if_a_listing_lacks_the_instance(subtests: pytest.Subtests) -> None:
    for empty in [1, 2, 6]:
        for listing in [page(total_instances=0), page(6, total_instances=1)]:
            with subtests.test(empty=empty, listing=listing):
                cli = Cli(*[listing] * empty, page(6, 7, 8))
                cli.on_destroy = lambda words, said: recorded("destroy_garbage")
                assert type(failure(cli)) is CommandFailed and cli.destroys()
                cli = Cli(*[listing] * empty, page(6, 8))
                assert destroy_instance("7", transport=cli.transport, clock=FakeClock()).acknowledged
                assert cli.numbers == [6, 8]


def test_one_that_goes_without_an_acknowledgement_is_gone_and_not_destroyed(subtests: pytest.Subtests) -> None:
    for said in [
        *map(recorded, ("destroy_garbage", "destroy_gone", "destroy_says_no", "page_down")),
        (0, "", ""),
        None,
    ]:
        with subtests.test(said=said):
            cli = Cli()

            def lost(words: tuple[str, ...], typed: str | None, cli: Cli = cli, said: Said | None = said) -> Said:
                answer = cli.destroyed()
                return answer if said is None else said

            cli.on_destroy = lost
            if said is None:
                cli.numbers.remove(7)  # it is gone already, and asked to go all the same
            destruction = destroy_instance("7", transport=cli.transport, clock=FakeClock())
            assert destruction == Destruction(7, acknowledged=False) and len(cli.destroys()) == 1


def test_whoever_waits_for_an_instance_to_go_is_told_for_how_long_at_most() -> None:
    cli, told = Cli(), list[str]()
    cli.on_destroy = lambda words, said: (0, "destroying instance 7.\n", "")
    with pytest.raises(CommandFailed):
        destroy_instance("7", on_event=told.append, transport=cli.transport, clock=FakeClock())
    assert told[0] == "waiting for instance 7 to disappear, for at most 118 s; vastai printed: destroying instance 7."
    assert len(told) > 5


def test_an_old_version_lists_all_at_once_and_is_answered_on_stdin() -> None:
    cli = OldCli()
    assert [row["id"] for row in list_instances(transport=cli.transport)] == [6, 7, 8]
    assert cli.calls[-1] == ("vastai", "show", "instances", "--raw")
    destroy_instance("7", transport=cli.transport, clock=FakeClock())
    plain = ("vastai", "destroy", "instance", "7")
    assert cli.destroys() == [(*plain, "-y", "--retry", "1"), plain] and cli.numbers == [6, 8]
    cli = OldCli()
    cli.on_destroy = lambda words, said: cli.asks(words[:-1], said)  # it asks in spite of the option
    destroy_instance("7", transport=cli.transport, clock=FakeClock())
    assert cli.numbers == [6, 8]


def test_an_instance_that_stays_is_not_destroyed_whatever_vastai_said(subtests: pytest.Subtests) -> None:
    for name, said in [
        ("destroy_aborted", "Aborted."),
        ("destroy_says_no", "cannot destroy"),
        ("destroy_yes", "destroying instance"),
        ("destroy_gone", "Failed with error 404"),
        ("destroy_garbage", "Expecting value"),
        ("page_down", "Connection refused"),
        ("destroy_option_first", "unrecognized arguments"),
    ]:
        with subtests.test(name=name, said=said):
            cli, clock = Cli(), FakeClock()
            cli.on_destroy = lambda words, answer, name=name: recorded(name)
            error = failure(cli, clock)
            assert type(error) is CommandFailed
            assert "instance 7 still exists 120 s" in str(error) and said in str(error)
            assert "vastai destroy instance 7 -y" in str(error)
            assert clock.elapsed == GONE_SECONDS
            assert len(cli.destroys()) < 40
            assert error.argv == ()  # a statement about the instance: no command failed


def test_what_vastai_said_last_is_what_the_error_tells() -> None:
    for said, told in (
        (["destroy_yes", "destroy_says_no"], "(vastai printed: cannot destroy)"),
        ([], "vastai printed: nothing"),
    ):
        cli, answers = Cli(), list(map(recorded, said))
        cli.on_destroy = lambda words, typed, left=answers: left.pop(0) if left else (0, "", "")
        assert told in str(failure(cli))


@pytest.mark.parametrize("seconds", [1.0, 7.0, 119.0])
def test_an_instance_that_stays_listed_for_some_seconds_is_waited_for(seconds: float) -> None:
    cli, clock = Cli(), FakeClock()
    cli.on_destroy = lambda words, said: (0, "destroying instance 7.\n", "")
    clock.at(seconds, lambda: cli.numbers.remove(7))
    destroy_instance("7", transport=cli.transport, clock=clock)
    assert seconds <= clock.elapsed <= seconds + 10 + APART_SECONDS
    assert len(cli.destroys()) <= 15


@pytest.mark.parametrize("name", ["destroy_wrong_key", "destroy_forbidden", "page_tfa_ended_no_key"])
def test_a_key_that_may_list_but_not_destroy_is_access_denied_at_once(name: str) -> None:
    cli, clock = Cli(), FakeClock()
    cli.on_destroy = lambda words, said: recorded(name)
    assert type(failure(cli, clock)) is AccessDenied
    assert clock.elapsed == 0 and len(cli.destroys()) == 1


def test_a_2fa_session_that_ended_does_not_keep_an_instance() -> None:
    cli = Cli()
    ended = recorded("page_tfa_ended")[1].partition("{")[0]
    cli.on_destroy = lambda words, said: (0, ended + cli.destroyed()[1], "")
    destroy_instance("7", transport=cli.transport, clock=FakeClock())
    assert cli.numbers == [6, 8]


def test_a_list_that_fails_after_the_destroy_leaves_it_unknown(subtests: pytest.Subtests) -> None:
    for name in [*UNKNOWN, "page_wrong_key", "page_answer_refused_empty"]:
        with subtests.test(name=name):
            cli = Cli(recorded(name))
            assert not isinstance(failure(cli), CommandFailed)


@pytest.mark.parametrize("hanging", ["show", "on_destroy"])
def test_a_vastai_that_hangs_leaves_it_unknown_and_a_second_call_ends_it(hanging: str) -> None:
    cli = Cli()
    answers = {"show": cli.show, "on_destroy": cli.on_destroy}

    def hang(*_: object) -> Said:
        raise CommandTimedOut("vastai did not respond within 60 s")

    setattr(cli, hanging, hang)
    assert type(failure(cli)) is CommandTimedOut
    setattr(cli, hanging, answers[hanging])
    destroy_instance("7", transport=cli.transport, clock=FakeClock())
    assert cli.numbers == [6, 8]


def test_a_slow_first_list_takes_nothing_from_the_time_an_instance_has_to_go() -> None:
    cli, clock = Cli(), FakeClock()
    plain_list = cli.show

    def slow(words: tuple[str, ...]) -> Said:
        clock.sleep(2 * GONE_SECONDS)
        return plain_list(words)

    cli.show = slow  # type: ignore[method-assign]
    destroy_instance("7", transport=cli.transport, clock=clock)
    assert len(cli.destroys()) == 1


def test_secrets_in_what_vastai_says_are_not_passed_on() -> None:
    cli = Cli((0, "", '{"error": true, "status_code": 401, "msg": "bad header Authorization: Bearer abcdefgh12345"}'))
    error = failure(cli)
    assert type(error) is AccessDenied
    assert "abcdefgh12345" not in f"{error} {error.result}"


# ---------------------------------------------------------------- at once


def flat(*numbers: int) -> Said:
    return 0, json.dumps([{"id": number} for number in numbers]), ""


def test_a_flat_listing_that_has_all_that_is_known_is_enough() -> None:
    cli = Cli(flat(6, 7, 8))
    assert [row["id"] for row in list_instances_at_once({6, 8}, transport=cli.transport)] == [6, 7, 8]
    assert cli.calls == [("vastai", "show", "instances", "--raw")]


def test_a_flat_listing_that_proves_nothing_leaves_it_to_the_complete_one(subtests: pytest.Subtests) -> None:
    for said in [
        flat(),
        flat(6, 7),
        (1, "", "TypeError: start_date"),
        *((0, text, "") for text in ("", "null", '{"success": false}', '[{"id": 6}, null]', '[{"id": "6"}]')),
        (0, "[" * 100_000, ""),
    ]:
        with subtests.test(said=said):
            cli = Cli(said, page(6, 7))
            assert [row["id"] for row in list_instances_at_once({6, 8}, transport=cli.transport)] == [6, 7]
            assert len(cli.calls) == 2 and "--limit" in cli.calls[1]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('{"error": true, "status_code": 500, "msg": "it broke"}\n', "vast.ai: it returned HTTP 500: it broke"),
        ('nudge\n{"error": true, "status_code": 429, "msg": null}\n', "vast.ai: it returned HTTP 429: null"),
        ('{"error": true, "status_code": 503, "msg": ""}', "vast.ai: it returned HTTP 503: no message"),
    ],
)
def test_a_refusal_is_told_in_few_words(said: str, expected: str) -> None:
    with pytest.raises(TargetUnreachable) as caught:
        list_instances(transport=Cli((0, "", said)).transport)
    assert caught.value.what == expected


def test_where_neither_listing_tells_anything_nobody_knows() -> None:
    with pytest.raises(TargetUnreachable):
        list_instances_at_once(transport=Cli((0, "", '{"error": true, "status_code": 500}')).transport)
    with pytest.raises(AccessDenied):
        list_instances_at_once(transport=Cli((0, "", '{"error": true, "status_code": 401}')).transport)
