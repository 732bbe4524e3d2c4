"""What looks like a secret, and what is known to be one, is masked; all else stays."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.secret_cases import CONTEXT_CASES, HEX, STAYS, TOKEN_CASES, letters
from tests.sweeps import cases_of
from training_monitor.core import masking
from training_monitor.core.errors import last_lines
from training_monitor.core.masking import (
    keep_secret,
    plain,
    redact,
    redact_argv,
    redact_named,
    redact_next,
    secrets_of,
    secrets_of_argv,
)
from training_monitor.core.secret_forms import TOKEN_FORMS
from training_monitor.core.shown import shown_lines
from training_monitor.runs.record import MOST_TEXT, plain_value
from training_monitor.vast.asking import clean_line


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(masking._Known, "values", ())
    yield


def forms() -> dict[str, tuple[str, str]]:
    """By name: a secret, and a text that holds it as scripts and tools print it."""
    made = {}
    for example, (texts, _) in CONTEXT_CASES.items():
        for number, text in enumerate(texts):
            secret = letters(24)
            made[f"{example} {number}"] = (secret, text.replace("VALUE", secret))
    for name, (secrets, _) in TOKEN_CASES.items():
        for number, secret in enumerate(secrets):
            made[f"{name} {number}"] = (secret, f"config: {secret}, then")
    body = "\n".join(letters(64) for _ in range(6))
    encoded = letters(64, HEX)
    return made | {
        "private key": (body, f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----"),
        "private keys 0": (body, f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{body}\n-----END PGP PRIVATE KEY BLOCK-----"),
        "end of a private key": (body, f"{body}\n-----END RSA PRIVATE KEY-----\nstep 1"),
        "private key without an end": (body, f"x\n-----BEGIN PRIVATE KEY-----\n{body}"),
        "Telegram bots 0": ("AA" + encoded[:33], f"https://api.telegram.org/bot123456789:AA{encoded[:33]}/sendMessage"),
        "percent-encoded": (encoded, f"callback=https%3A%2F%2Fb%3FX-Amz-Signature%3D{encoded}"),
        "JSON in JSON": (encoded, f'{{\\"password\\": \\"{encoded}\\"}}'),
        "phrase": ("correct horse battery", 'password="correct horse battery"'),
        "password with a slash": (f"{encoded}/x", f"https://me:{encoded}/x@host/git"),
        "key that begins with a slash": (f"/{encoded[:39]}", f"aws_secret_access_key=/{encoded[:39]}"),
    }


def test_every_common_form_is_masked_whatever_stands_around_it() -> None:
    for name, (secret, text) in forms().items():
        for before, after in (("", ""), ("step 5 loss 0.5\n", "\nstep 6\n"), ("é İ ", " ß")):
            if name == "end of a private key" and before:
                continue  # only at the beginning of a piece of a log is its beginning unknown
            shown = redact(before + text + after)
            assert secret not in shown and masking.MASK in shown
            to_the_end = "PRIVATE" in text or "Cookie" in name or "Digest" in text
            assert shown.startswith(before) and (shown.endswith(after) or to_the_end)
            assert redact(shown) == shown


def test_what_nobody_sees_inside_a_secret_hides_it_from_nobody() -> None:
    keep_secret("wholly-quiet-words")
    made = {**forms(), "known": ("wholly-quiet-words", "it is wholly-quiet-words, then")}
    for sign in cases_of(["\x1b[1m", "\x1b[38;5;208m", "\u200b", "\ufeff", "\xad", "\0", "\u2060", "\x1b(B"], 3):
        for secret, text in made.values():
            at = text.index(secret) + len(secret) // 2
            for changed in (text[:at] + sign + text[at:], text.replace(secret, f"{sign}{secret}{sign}")):
                assert secret not in shown_lines(redact(changed)) and masking.MASK in redact(changed)
        secret, _ = made["Hugging Face 0"]
        assert secret not in redact(f"word{sign}{secret}")
    plain = "step \x1b[1m5\x1b[0m loss \u200b0.5 |\u2588\u2588| \xe9"
    assert redact(plain) == plain


def test_a_private_key_is_masked_though_it_comes_line_by_line() -> None:
    _, text = forms()["private key"]
    for before in ("", "step 5\n"):
        told, in_key = [], False
        for line in f"{before}{text}\nstep 6 of 10\nDONE\n".splitlines(keepends=True):
            shown, in_key = redact_next(line, in_key)
            told.append(shown)
        assert not [line for line in text.splitlines()[1:-1] if line in "".join(told)]
        assert "".join(told).startswith(before) and "".join(told).endswith("-----\nstep 6 of 10\nDONE\n") and not in_key
    cut, in_key = redact_next(text[: len(text) // 2], False)
    rest, in_key = redact_next("step 7 of 10\n", in_key)
    assert rest == "step 7 of 10\n" and not in_key, "a key that nobody ended does not hide the log after it"


def test_what_looks_like_a_row_of_the_tables_stays() -> None:
    for _, stays in (*CONTEXT_CASES.values(), *TOKEN_CASES.values()):
        for text in stays:
            assert redact(text) == text
            assert redact(f"step 5 {text}\n") == f"step 5 {text}\n"


def test_what_training_logs_say_stays() -> None:
    for text in (
        *STAYS,
        "tokens/s: 12345.6 step 5/100 token: 151643 pad_token_id=151643 n_tokens: 1.2e9 tokens_per_second=81920",
        "eos_token: '<|im_end|>' bos_token: <s> pad_token: [PAD] token=None num_tokens=819200",
        "task-runner-0123456789 disk-usage-report key: 5 monkey=bananas keyboard: german sk-1",
        "step 1 loss 2.5 lr 1e-4 | Saving checkpoint to /workspace/output/checkpoint-500",
        "ssh://root@host:22 https://host/path?x=1 s3://bucket/key hf:me/model user@host",
        "use `hf_transfer` for faster uploads, HF_HUB_ENABLE_HF_TRANSFER=1, hf_hub_download_and_cache",
        "tokenizer: bert-base-uncased secretary=Jones passing=True authors: me",
        "PWD=/work/run pwd=~/x bypass=1 forward_pass=0.123 http://127.0.0.1:8080/a?mail=b@c 'key': 5 ?key=loss",
        "time 2026-11-25T01:41:59 12:34:56:aaaa ssh://host:22022/a@b",
        'secrets "hf-login" is forbidden: the password prompt was refused (publickey,password).',
        'dial tcp 127.0.0.1:6443: connection refused: Get "https://10.0.0.1:16443/api?timeout=32s": EOF',
    ):
        assert redact(text) == text


def test_known_values_are_masked_wherever_they_are_and_short_ones_are_not() -> None:
    keep_secret("correct horse battery", "short", "hunter2", None, "", "first line 1\nsecond line")
    assert redact("say correct horse battery, short, hunter2") == "say ***, short, ***"
    assert redact("q=correct%20horse%20battery") == "q=***"
    assert redact("the second line of it") == "the *** of it"


def test_a_known_value_is_masked_as_json_writes_it() -> None:
    for value in ('quote " and more', "back\\slash and more", "d\xfcrfte niemand sehen"):
        keep_secret(value)
        for ascii_only in (True, False):
            assert json.dumps(value, ensure_ascii=ascii_only)[1:-1] not in redact(
                f"it: {json.dumps([value], ensure_ascii=ascii_only)}"
            )


def test_only_the_name_of_a_variable_makes_it_secret() -> None:
    env = {"HF_TOKEN": "plain-word", "A": "x8Kq-22bd", "EPOCHS": "300000000", "OUT": "/data/run-01", "OPT": "adamw"}
    env |= {
        "MODEL": "llama-3.1-8b",
        "JOB_ID": "raysubmit_x8Kq22bd",
        "TOKENIZER": "bert-base-2",
        "MAX_TOKENS": "819200000",
    }
    env |= {"NUM_TOKENS": "300000000", "TOKEN": "300000000"}
    env |= {"URL": "https://example.com/v1", "GIT_AUTHOR_NAME": "Ada Lovelace", "LS_COLORS": "rs=0", "PWD": "/work"}
    env |= {"SSH_AUTH_SOCK": "/tmp/ssh-1/agent", "KEYBOARD": "qwertzuiop", "GOOGLE_CREDENTIALS_FILE": "/root/key.json"}
    env |= {"SLACK_WEBHOOK_URL": "hooks/T0", "aws_secret_access_key": "/0123456789abcdefABCDEF0123456789abcdefg"}
    assert secrets_of(env) == ["plain-word", "hooks/T0", "/0123456789abcdefABCDEF0123456789abcdefg"]


def test_a_secret_s_name_masks_what_it_stands_beside() -> None:
    kept = {"key": "member-1234", "api_key": "quiet", "token_env": "MY_TOKEN", "pad_token": "<pad>", "tokens": "many"}
    kept |= {"auth": {"user": "me", "password": "a b"}, "api_keys": ["one"], "password": 5, "model": "llama-3.1-8b"}
    nested = {"credentials": {"client": ["first", {"deep": "second"}]}, "losses": [{"clientSecret": "third"}]}
    assert plain(kept) == {
        **kept, "api_key": "***", "auth": {"user": "***", "password": "***"}, "api_keys": ["***"],
    }  # fmt: skip
    assert not {"first", "second", "third"} & {*json.dumps(plain(nested)).replace('"', " ").split()}
    assert redact_named("api_key", "quiet") == "***" and redact_named("loss", "quiet") == "quiet"
    assert redact_named("token", "151643") == "151643" and redact_named("token", 151643) == 151643


def test_the_words_of_a_command_are_masked_by_those_before() -> None:
    for words, shown in (
        ("curl -u me:quiet https://host", "curl -u me:*** https://host"),
        ("sshpass -p quiet ssh -p 22 me@host", "sshpass -p *** ssh -p 22 me@host"),
        ("mysql -pquiet -P3306", "mysql -p*** -P3306"),
        (
            "x --hub-token quiet --max-tokens 4096 --key /root/.ssh/id",
            "x --hub-token *** --max-tokens 4096 --key /root/.ssh/id",
        ),
        ("docker login -u me -p quiet ghcr.io", "docker login -u me -p *** ghcr.io"),
        ("wget --header Authorization:_Bearer_x https://host", "wget --header Authorization:*** https://host"),
    ):
        assert " ".join(redact_argv(tuple(words.split()))) == shown
    assert redact_argv(("-H", "Cookie: a=quiet b", "then")) == ("-H", "Cookie: ***", "then")
    found = secrets_of_argv(("curl", "-H", "Authorization: Bearer quiet-word", "--token", "x y"))
    assert {*found} == {"x y", "quiet-word"}


def test_masking_takes_time_in_proportion_to_the_text() -> None:
    begun = "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "cookie:", "bearer ", "token=", "--token "
    signs = (sign for form in TOKEN_FORMS.values() for sign in form.signs)
    more = "token", "--a-", "://", "eyJ", "eyJaaaaaaaa.", "a", "hf_", "1:aa", "a" * 16 + "\n", "login x ", ".aaaaaa."
    for piece in (*begun, *more, *signs):
        redact(piece * (20_000 // len(piece)))
    for texts, _ in CONTEXT_CASES.values():
        begin = texts[0].partition("VALUE")[0]
        for text in (begin * (20_000 // len(begin)), f"{begin}{' ' * 20_000}x", begin + "a" * 20_000):
            redact(text)


def test_what_is_cut_is_masked_before() -> None:
    secret = "Jd7eKx0vQ2mWnR5tYb8u" * 2
    keep_secret(secret)
    for cut, most in ((last_lines, 300), (clean_line, 300), (lambda text: str(plain_value(text)), MOST_TEXT)):
        for before in range(most - len(secret) - 2, most + 2):
            assert secret[:4] not in cut(f"{'a' * before} {secret} and more")
