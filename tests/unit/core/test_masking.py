"""What looks like a secret, and what is known to be one, is masked; all else stays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from training_monitor.core import masking
from training_monitor.core.errors import last_lines
from training_monitor.core.masking import (
    keep_secret,
    redact,
    redact_next,
    secrets_of,
    secrets_of_environment,
)
from training_monitor.core.shown import shown_lines
from training_monitor.runs.record import MOST_TEXT, plain_value
from training_monitor.vast.asking import clean_line

CHANCE = random.Random(18)


def letters(count: int, alphabet: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") -> str:
    return "".join(CHANCE.choice(alphabet) for _ in range(count))


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(masking._Known, "values", ())
    yield


def forms() -> dict[str, tuple[str, str]]:
    """By name: a secret, and a text that holds it as scripts and tools print it."""
    url = "https://b.s3.amazonaws.com/k?X-Amz-Credential"
    sealed = letters(64, "0123456789abcdef")
    body = "\n".join(letters(64) for _ in range(6))
    made = {
        "AWS key id": "AKIA" + letters(16).upper(),
        "AWS session key id": "ASIA" + letters(16).upper(),
        "Hugging Face": "hf_" + letters(34),
        "OpenAI": "sk-proj-" + letters(40),
        "Slack bot": f"xoxb-{letters(12, '0123456789')}-{letters(24)}",
        "Slack app": f"xapp-1-{letters(30)}",
        "GitHub": "ghp_" + letters(36),
        "GitHub, fine-grained": "github_pat_" + letters(60),
        "GitLab": "glpat-" + letters(20),
        "Google": "AIza" + letters(35),
        "NVIDIA": "nvapi-" + letters(60),
        "Replicate": "r8_" + letters(37),
        "npm": "npm_" + letters(36),
        "PyPI": "pypi-AgEIcHlwaS5vcmc" + letters(60),
        "JWT": f"eyJ{letters(20)}.eyJ{letters(40)}.{letters(43)}",
        "SendGrid": f"SG.{letters(22)}.{letters(43)}",
        "Stripe": "sk_live_" + letters(24),
        "Stripe, to test": "sk_test_" + letters(24),
        "Groq": "gsk_" + letters(40),
        "xAI": "xai-" + letters(40),
        "Vault": "hvs." + letters(40),
    }
    found = {name: (secret, f"config: {secret}, then") for name, secret in made.items()}
    secret = letters(24)
    telegram = f"AA{letters(33)}"
    return found | {
        "Slack webhook": (secret, f"POST https://hooks.slack.com/services/T00/B00/{secret} 404"),
        "Discord webhook": (secret, f"https://discord.com/api/webhooks/223704706495545344/{secret}"),
        "Teams webhook": (secret, f"https://x.webhook.office.com/webhookb2/{secret}/IncomingWebhook/1"),
        "Telegram bot": (telegram, f"https://api.telegram.org/bot123456789:{telegram}/sendMessage"),
        "presigned: signature": (sealed, f"PUT {url}=AKIA%2F1&X-Amz-Signature={sealed}&x-id=PutObject"),
        "presigned: credential": (secret, f"PUT {url}={secret}%2F20260101%2Fus-east-1&X-Amz-Date=1"),
        "presigned: token": (secret, f"PUT {url}=a%2F1&X-Amz-Security-Token={secret}"),
        "presigned by Google": (sealed, f"https://storage.googleapis.com/b/k?X-Goog-Signature={sealed}"),
        "presigned by Azure": (secret, f"https://a.blob.core.windows.net/c/b?sv=2024&sig={secret}%3D"),
        "presigned, old": (secret, f"https://b.s3.amazonaws.com/k?AWSAccessKeyId=AKIDX&Signature={secret}&Expires=1"),
        "percent-encoded": (sealed, f"callback=https%3A%2F%2Fb%3FX-Amz-Signature%3D{sealed}"),
        "private key": (body, f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----"),
        "end of a private key": (body, f"{body}\n-----END RSA PRIVATE KEY-----\nstep 1"),
        "private key without an end": (body, f"x\n-----BEGIN PRIVATE KEY-----\n{body}"),
        "user and password": (secret, f"https://me:{secret}@host/git"),
        "token for a user": (secret, f"https://{secret}@github.com/me/x"),
        "database": (secret, f"postgresql://me:{secret}@db:5432/x"),
        "assignment": (secret, f"WANDB_API_KEY={secret}"),
        "numbered": (secret, f"HF_TOKEN_2={secret}"),
        "secret key": (secret, f"aws_secret_access_key = {secret}"),
        "JSON": (secret, f'{{"client_secret": "{secret}"}}'),
        "JSON in JSON": (secret, f'{{\\"password\\": \\"{secret}\\"}}'),
        "environ of a traceback": (secret, f"environ({{'MY_TOKEN': '{secret}', 'A': 'b'}})"),
        "option": (secret, f"train.py --hub-token {secret} --steps 5"),
        "header": (secret, f"Authorization: Bot {secret}"),
        "header of a digest": (secret, f'Authorization: Digest username="me", response="{secret}"'),
        "cookie": (secret, f"Set-Cookie: id={secret}; Path=/"),
        "cookie of a dictionary": (secret, f"{{'Cookie': 'sid={secret}'}}"),
        "phrase": ("correct horse battery", 'password="correct horse battery"'),
        "DB_PASS": (secret, f"DB_PASS={secret}"),
        "pwd": (secret, f"mysql pwd={secret}"),
        "query of a URL in HTML": (secret, f"https://a.blob/c?x=1&amp;sig={secret}"),
        "query of a URL in JSON": (secret, f"https://a.blob/c?x=1\\u0026sig={secret}"),
        "assignment in JSON": (secret, f"token\\u003d{secret}"),
        "key of a query": (secret, f"GET https://maps.example.com/v1?key={secret}"),
        "password with a slash": (f"{secret}/x", f"https://me:{secret}/x@host/git"),
        "user and password, encoded": (secret, f"proxy=https%3A%2F%2Fme%3A{secret}%40host"),
        "Slack webhook, encoded": (secret, f"to=https%3A%2F%2Fhooks.slack.com%2Fservices%2FT00%2FB00%2F{secret}"),
        "PGP key": (body, f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{body}\n-----END PGP PRIVATE KEY BLOCK-----"),
        "bearer": (secret, f"401 for Bearer {secret}"),
    }


def test_every_common_form_is_masked_whatever_stands_around_it(subtests: pytest.Subtests) -> None:
    for name, (secret, text) in forms().items():
        for before, after in (("", ""), ("step 5 loss 0.5\n", "\nstep 6\n"), ("é İ ", " ß")):
            with subtests.test(name=name, before=before):
                if name == "end of a private key" and before:
                    continue  # only at the beginning of a piece of a log is its beginning unknown
                shown = redact(before + text + after)
                assert secret not in shown and masking.MASK in shown
                to_the_end = "PRIVATE" in text or "cookie" in name or "digest" in name
                assert shown.startswith(before) and (shown.endswith(after) or to_the_end)
                assert redact(shown) == shown


def test_what_nobody_sees_inside_a_secret_hides_it_from_nobody(subtests: pytest.Subtests) -> None:
    keep_secret("wholly-quiet-words")
    made = {**forms(), "known": ("wholly-quiet-words", "it is wholly-quiet-words, then")}
    for sign in ("\x1b[1m", "\x1b[38;5;208m", "\u200b", "\ufeff", "\xad", "\0", "\u2060", "\x1b(B"):
        for name, (secret, text) in made.items():
            with subtests.test(name=name, sign=ascii(sign)):
                at = text.index(secret) + len(secret) // 2
                for changed in (text[:at] + sign + text[at:], text.replace(secret, f"{sign}{secret}{sign}")):
                    assert secret not in shown_lines(redact(changed)) and masking.MASK in redact(changed)
        secret, _ = made["Hugging Face"]
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


def test_what_training_logs_say_stays() -> None:
    for text in (
        "tokens/s: 12345.6 step 5/100 token: 151643 pad_token_id=151643 n_tokens: 1.2e9 tokens_per_second=81920",
        "eos_token: '<|im_end|>' bos_token: <s> pad_token: [PAD] token=None num_tokens=819200",
        "task-runner-0123456789 disk-usage-report key: 5 monkey=bananas keyboard: german sk-1",
        "step 1 loss 2.5 lr 1e-4 | Saving checkpoint to /workspace/output/checkpoint-500",
        "ssh://root@host:22 https://host/path?x=1 s3://bucket/key hf:me/model user@host",
        "use `hf_transfer` for faster uploads, HF_HUB_ENABLE_HF_TRANSFER=1, hf_hub_download_and_cache",
        "tokenizer: bert-base-uncased secretary=Jones passing=True authors: me",
        "PWD=/work/run pwd=~/x bypass=1 forward_pass=0.123 http://127.0.0.1:8080/a?mail=b@c 'key': 5 ?key=loss",
        "time 2026-11-25T01:41:59 12:34:56:aaaa",
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


def test_of_the_variables_of_a_run_what_may_be_secret_is_known() -> None:
    env = {"HF_TOKEN": "plain-word", "A": "x8Kq-22bd", "EPOCHS": "300000000", "OUT": "/data/run-01", "OPT": "adamw"}
    env |= {"URL": "https://example.com/v1", "DB": "pg://u:p4ssw0rd@h/d", "PYTORCH_ALLOC": "expandable_segments"}
    assert secrets_of(env) == ["plain-word", "x8Kq-22bd", "pg://u:p4ssw0rd@h/d"]


def test_of_this_machine_s_environment_only_names_decide() -> None:
    env = {"WANDB_API_KEY": "0123456789abcdef", "GIT_AUTHOR_NAME": "Ada Lovelace", "PATH": "/bin", "LS_COLORS": "rs=0"}
    env |= {"SSH_AUTH_SOCK": "/tmp/ssh-1/agent", "KEYBOARD": "qwertzuiop", "PWD": "/work", "SLACK_WEBHOOK": "hooks/T0"}
    assert secrets_of_environment(env) == ["0123456789abcdef", "hooks/T0"]


def test_masking_takes_time_in_proportion_to_the_text() -> None:
    begun = "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "cookie:", "bearer ", "token=", "--token "
    for piece in (*begun, "token", "--a-", "://", "eyJ", "eyJaaaaaaaa.", "a", "hf_", "1:aa", "a" * 16 + "\n"):
        redact(piece * (200_000 // len(piece)))


def test_what_is_cut_is_masked_before(subtests: pytest.Subtests) -> None:
    secret = "Jd7eKx0vQ2mWnR5tYb8u" * 2
    keep_secret(secret)
    for name, cut, most in (
        ("the end of an output", last_lines, 300),
        ("an answer of vastai", clean_line, 300),
        ("a value of a script", lambda text: str(plain_value(text)), MOST_TEXT),
    ):
        with subtests.test(name):
            for before in range(most - len(secret) - 2, most + 2):
                assert secret[:4] not in cut(f"{'a' * before} {secret} and more")
