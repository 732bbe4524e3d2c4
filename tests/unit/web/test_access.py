from __future__ import annotations

from training_monitor.web.access import (
    CLOCK_SECONDS,
    LOOPBACK,
    SESSION_SECONDS,
    Session,
    bearer_of,
    find_cookie,
    forgery_token,
    is_act,
    is_foreign,
    is_known_host,
    is_loopback,
    make_session,
    session_key,
    session_of,
)

KEY, NOW = b"0" * 32, 1_770_000_000.0
SESSION = "a-session-of-somebody"


def test_only_addresses_of_this_machine_are_loopback_and_headers_are_taken_apart() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "", "10.0.0.1", "127.evil.example", "localhost.example", "1::1")))
    assert find_cookie("a=1; training_monitor_1=x=y ;b", "training_monitor_1") == "x=y"
    assert find_cookie("xa=1", "a") is None and find_cookie(None, "a") is None
    assert bearer_of("Bearer  abc ") == bearer_of("bearer abc") == "abc"
    assert bearer_of("Basic abc") is None and bearer_of(None) is None and bearer_of("Bearer") == ""


def test_the_names_of_this_machine_are_known_and_another_host_is_not() -> None:
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:8750", "[::1]", "[::1]:1", "localhost."):
        assert is_known_host(host, LOOPBACK), host
    wrong = "evil.example localhost.evil.example localhost: localhost:x a@localhost ::1 ["
    for host in (None, "", *wrong.split()):
        assert not is_known_host(host, LOOPBACK) and not is_known_host(host, LOOPBACK, addresses=True), host
    for host in ("10.0.0.1", "10.0.0.1:8750", "[fe80::1]:8750"):
        assert is_known_host(host, LOOPBACK, addresses=True) and not is_known_host(host, LOOPBACK)
    assert not is_known_host("10.0.0.1.evil.example", LOOPBACK, addresses=True)


def test_what_a_browser_says_of_the_site_decides() -> None:
    host = "localhost:8750"
    assert not is_foreign(None, None, host)
    assert not is_foreign(f"http://{host}", "same-origin", host) and not is_foreign(None, "none", host)
    for site in ("cross-site", "same-site", "", "SAME_ORIGIN"):
        assert is_foreign(None, site, host), site
    for origin in ("null", "", "http://localhost:1", "http://evil.example", f"http://{host}.evil.example"):
        assert is_foreign(origin, "same-origin", host), origin


def test_a_session_is_proved_by_its_signature_until_it_ends() -> None:
    cookie = make_session(KEY, SESSION, NOW)
    for now in (NOW, NOW + SESSION_SECONDS - 1, NOW - CLOCK_SECONDS):
        assert session_of(KEY, cookie, now) == Session(SESSION, NOW)
    for now in (NOW + SESSION_SECONDS, NOW - CLOCK_SECONDS - 1):
        assert session_of(KEY, cookie, now) is None
    assert session_of(b"1" * 32, cookie, NOW) is None
    name, until, signature = cookie.split(".")
    changed = [f"{name}.{int(until) + 1}.{signature}", f"{name}x.{until}.{signature}", cookie[:-1], f"{cookie}0", ""]
    changed += [cookie.upper(), f"{name}.{until}.{forgery_token(KEY, name)}", f"{name}.{until}", "\u0661" * 90]
    assert [each for each in changed if session_of(KEY, each, NOW) is not None] == []
    assert session_of(KEY, None, NOW) is None


def test_each_token_port_and_state_folder_has_its_own_key() -> None:
    keys = [session_key(*each) for each in ((KEY, "a" * 16, 1), (KEY, "b" * 16, 1), (KEY, "a" * 16, 2), (KEY, None, 1))]
    keys.append(session_key(b"1" * 32, "a" * 16, 1))
    assert len({*keys, KEY}) == 6 and session_key(KEY, "a" * 16, 1) == keys[0]


def test_only_a_page_that_a_person_loads_is_an_act() -> None:
    assert is_act(None, None) and is_act("navigate", "?1")
    assert not any(is_act(*each) for each in (("navigate", None), ("cors", None), ("cors", "?1"), ("no-cors", None)))
