"""Define what secrets look like: typical names, contexts in which secrets appear, and token formats. Pure.

`masking.py` uses the three tables `NAMES` (parts of names whose values are secret), `CONTEXTS` and `TOKEN_FORMS`.

Formats of tokens: https://docs.github.com/en/code-security/secret-scanning (partner patterns), the rules of gitleaks
(https://github.com/gitleaks/gitleaks, config/gitleaks.toml) and of trufflehog (pkg/detectors); the bots of Discord:
https://discord.com/developers/docs/reference#authentication; presigned URLs:
https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html and its siblings.

No pattern takes more than linear time: what may repeat is bounded, or begins at a text that cannot overlap itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from training_monitor.core.regex import regex

_NUMBER = r"[-+]?[\d.,]+(?:e[-+]?\d+)?%?"
_REMARK = (
    r"[\[{(]?\*+\W*|(?-i:\$[A-Z_][A-Z0-9_]*)|\$[{(].*|<[\w .-]*>|env:\w+|none|null|nil|true|false|yes|no|not|unset"
    r"|empty|required|missing|invalid"
    r"|expired|incorrect|wrong|changed|redacted|hidden|accepted|denied|failed|optional|enabled|disabled|provided|found"
    r"|x{4,}|your[_-][\w-]+|[\w-]{0,6}\.\.\.|--\S*"
)
_NUMBERS = regex(r"\d{0,5}(?:[.,:;/-]+\d{1,5})*[.,:;/-]*")  # also ports and users: 8080:80
_REMARKS = regex(_REMARK, re.IGNORECASE)
# Not a secret after `token=`, `key=` or `pwd=`: a number, a placeholder, the name of a variable, a folder. The secret
# keys of AWS have 40 characters, and may begin with a slash.
_PLAIN_VALUE = regex(
    rf"{_NUMBER}|[<\[($*@{{~\s\u2581\u0120].*|/(?![A-Za-z0-9+/=]{{39}}\Z).*|\.{{1,2}}/.*|{_REMARK}",
    re.IGNORECASE | re.DOTALL,
)
_METAVARIABLE = regex(r"[A-Z_]{3,24}\]?")
_IDENTIFIER = regex(r"[A-Za-z][A-Za-z_./ -]{0,30}")
# Where no quotes are around it: a call, an index, a type, or a value of the program's own variables.
_CODE = regex(
    r"(?:[A-Za-z_]|b64)[A-Za-z_.]*(?:\(.*\)?|\[.*\]?)"
    r"|(?:args|cfg|config|env|hparams|kwargs|opts?|os|self|settings)\.[\w.]+"
    r"|(?:[a-z]+_)?(?:api_key|key|token|secret|password|passwd|passphrase)",
    re.DOTALL,
)
_AWS_KEY = regex(r"/[A-Za-z0-9+/=]{39}")
_ORDINARY = regex(
    r"(?:sha|md|utf|base|argon|pbkdf|oauth|x|https?|v|ipv|cp|python|rank|node|gpu|step|epoch)[-_.]?\d[\w.-]{0,10}"
    r"|[\d.,:+-]+[a-z%/]{0,8}|\S*\w=\w\S*|\S*://\S*|\S+\.(?:py|json|ya?ml|toml|txt|md|pt|bin|safetensors|env|sh|log|ini|cfg|conf|html?)\W*"
    r"|\S*[()\[\]<>{}|]\S*",
    re.IGNORECASE,
)

# ---------------------------------------------------------------- names

_KEYS = (
    r"(?:api|app|application|access|account|admin|anthropic|auth|client|consumer|deploy|encryption|functions?|license"
    r"|master|openai|private|secret|service|shared|signing|subscription|vault|wandb|webhook|write)[ _-]?"
)
_SIGNS = ("bos", "eos", "pad", "unk", "cls", "sep", "mask", "special", "stop")
_NO_SIGN = "".join(rf"(?<!{sign}[_-]token)" for sign in _SIGNS)
# Texts of a name whose value is secret: what follows them, and what stands before. Patterns begin with such a text:
# that is what makes their search fast.
NAMES = {
    "token": (_NO_SIGN, ""),
    **{word: ("", "") for word in ("secret", "password", "passwd", "passphrase", "passcode", "pwd", "sshpass")},
    "_auth": ("", ""),
    "_pass": (r"(?<!forward_pass)(?<!backward_pass)", ""),
    "-pass": ("", ""),
    "credential": ("s?", ""),
    "key": ("", _KEYS),
}
_MAY_BE_PLAIN = ("token", "key", "pwd", "_pass", "-pass", "_auth", "credential")
_SPOKEN = ("password", "passwd", "passphrase", "passcode", "key", "token", "secret")  # names in sentences
_ENDING = r"(?:[_-](?:key|value|id|data|access[_-]key|base64|b64|prod|dev|test|staging|read|write|\d{1,2}))?"
_NO_NAMES = {"token": "(?!s|i[sz])", "secret": "(?!ar)"}  # tokens, tokenizer, secretary
_OTHER_NAMES = (
    r"webhook|auth(?!or(?!iz)|ent|_?sock)|cookie|dsn"
    r"|(?:^|(?<!public)[_.-])(?:key|pat|pass|pw)(?:$|[_.-](?!id))"
)
_NOT_OF_VALUES = regex(  # what such a name may end in without being that of a secret
    r"(?:[_.-]|(?<=[a-z]))(?:file|path|dir|directory|sock|name|type|mode|method|stdin|algo|budget|provider|policy"
    r"|strategy|used|env|count|length|len|limit|size|format|parallelism"
    r"|(?<!webhook_)ur[il]|expiry|expires|ttl|version|status)s?\Z"
)
_TEXTS_OF_NAMES = ("pass", "token", "secret", "key", "pw", "auth", "credential", "cookie", "webhook", "dsn", "pat")
_SECRET_NAME = regex(
    "|".join(before + name + _NO_NAMES.get(name, "") + after for name, (after, before) in NAMES.items())
    + f"|{_OTHER_NAMES}"
)
_CLEARLY_SECRET = regex("|".join(b + n + _NO_NAMES.get(n, "") + a for n, (a, b) in NAMES.items() if n != "_auth"))
_OPENERS = {")": "(", "]": "[", "}": "{", "`": "`"}
_IS_PASSWORD = regex(r"pass(?:w|phr|c)|secret")
_CAMEL = regex(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret_name(name: str) -> bool:
    """Return whether a name is typical of a secret.

    >>> [is_secret_name(name) for name in ("HF_TOKEN", "apiKey", "X-Api-Key", "db.password", "MY_PAT")]
    [True, True, True, True, True]
    >>> [is_secret_name(name) for name in ("max_tokens", "TOKENIZER", "AUTHOR", "token_env", "PWDFILE", "monkey")]
    [False, False, False, False, False, False]
    """
    lower = name[-200:].lower()
    if not any(text in lower for text in _TEXTS_OF_NAMES):
        return False
    if name[-200:] not in (lower, lower.upper()):
        lower = _CAMEL.sub("_", name[-200:]).lower()
    return bool(_SECRET_NAME.search(lower)) and not _NOT_OF_VALUES.search(lower)


def is_secret(name: str, value: str) -> bool:
    """Return whether the value of this name is secret. A path is not; nor is a number or placeholder after `token=`."""
    if _is_path(value) or not is_secret_name(name) or _REMARKS.fullmatch(value):
        return False
    lower = _CAMEL.sub("_", name[-200:]).lower()
    if lower.endswith("key") and _IDENTIFIER.fullmatch(value) and not _CLEARLY_SECRET.search(lower):
        return False  # sort_key: val_loss
    return bool(_IS_PASSWORD.search(name.lower())) or not _PLAIN_VALUE.fullmatch(value)


def _is_path(value: str) -> bool:
    """Return whether a value is a path; the secret keys of AWS have 40 characters, and may begin with a slash."""
    return value.startswith(("/", "./", "../", "~")) and not (len(value) == 40 and _AWS_KEY.fullmatch(value))


# ---------------------------------------------------------------- contexts


def end_of_value(text: str, first: int, last: int) -> int:
    """Return where an unquoted value ends: before closing brackets that were opened before the value."""
    while last > first and (opener := _OPENERS.get(text[last - 1])) and opener not in text[first : last - 1]:
        last -= 1
    return last


def is_code(text: str, first: int, last: int) -> bool:
    """Return whether an unquoted value is program code, such as `os.environ[...]`."""
    return text[first - 1 : first] not in ('"', "'") and _CODE.fullmatch(text, first, last) is not None


def _is_no_remark(value: str) -> bool:
    return not _REMARKS.fullmatch(value)


def _is_not_plain(value: str) -> bool:
    return not _PLAIN_VALUE.fullmatch(value)


def _is_no_name(value: str) -> bool:
    """Return whether a value is not the placeholder of an option's value in a help text."""
    return not (_REMARKS.fullmatch(value) or _METAVARIABLE.fullmatch(value))


def _is_no_placeholder(value: str) -> bool:
    return _is_not_plain(value) and _is_no_name(value)


def _is_no_number(value: str) -> bool:
    return not (_REMARKS.fullmatch(value) or _NUMBERS.fullmatch(value))


def _is_no_word(value: str) -> bool:
    return not (value.isalpha() and (value.islower() or value.istitle()))


def _is_no_phrase(value: str) -> bool:
    """Return whether a value is more than a word of a message, as in `getting credentials: exec: …`."""
    return _is_not_plain(value) and _is_no_word(value.rstrip(".:"))


def _is_odd(value: str) -> bool:
    """Return whether a value is not a word of a sentence: letters with digits or signs, or a long mix of cases."""
    text = value.rstrip(".:!?")
    if len(text) < 6 or "***" in text or _PLAIN_VALUE.fullmatch(text) or _ORDINARY.fullmatch(text):
        return False
    has_signs = any(each in "0123456789!@#$%^*+=~" for each in text) and any(map(str.isalpha, text))
    return has_signs or (len(text) >= 20 and not text.islower() and not text.isupper())


def _is_long_and_odd(value: str) -> bool:
    return len(value) >= 16 and _is_odd(value)


class Context(NamedTuple):
    """The context in which a secret appears.

    Attributes:
        example: an example of the context; VALUE is the secret.
        signs: lower-case strings; each match contains one of them.
        pattern: matches text in lower case; its last group is the secret, and the group `name`, if any, its name.
        accepts: return whether a value can be a secret in this context.
        before: a pattern that must match within the preceding 300 characters.
        as_written: match the original text instead of the text in lower case.
    """

    example: str
    signs: tuple[str, ...]
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool] = _is_no_remark
    before: re.Pattern[str] | None = None
    as_written: bool = False


# Without quotes: up to a blank, or a sign behind which something else begins.
_VALUE = r"""[^\s"'&,;\\](?:[^\s"'&,;\\]|[&,;](?=[^\s"'&,;\\])(?![\w.-]{1,40}[=:])){3,}"""
# In quotes, in those that are escaped, or in those of YAML, which are doubled.
_PHRASE = (
    r"""(?<=\\")[^"\r\n\\]{4,1000}(?=\\")|(?<=")(?<!\\")(?:[^"\r\n\\]|\\.){4,1000}(?=")"""
    r"""|(?<=')(?<!\\')(?:[^'\r\n\\]|\\.|''){4,1000}(?=')"""
)
_IS = r"""\\?["']?\]?\s*(?:=>|=&gt;|:=|->|\.{3,}|[:=]|%3d|\\u003d)\s*(?:b(?=["']))?\\?["']?"""
_BEING = r"(?:(?:is|was|set to)\s{0,3}:?\s{1,5})?"
_SEP = r"""["']?[\s,]{1,5}["']?"""  # between two words, also of a list
_WORD = r"""[^\s"',]{1,500}(?:,(?=[^\s"',\]])[^\s"',]{1,500}){0,9}"""
_PASSWORD = rf"""["']?({_PHRASE}|{_WORD})"""
_SHORT, _LONG = "(?:bearer|basic|token|bot|apikey|geniekey)", r"(?:digest|negotiate|ntlm|hawk|key|aws4-[\w-]+)"


def _context(
    example: str,
    signs: str,
    pattern: str,
    accepts: Callable[[str], bool] = _is_no_remark,
    before: str = "",
    *,
    as_written: bool = False,
) -> Context:
    """Return a context; `signs` are separated by |."""
    return Context(
        example, (*signs.split("|"),), regex(pattern), accepts, regex(before) if before else None, as_written
    )


def _of_program(example: str, signs: str, programs: str, option: str, *, as_written: bool = False) -> Context:
    """Return the context of an option that only these programs have."""
    context = _context(example, signs, rf"(?<![\w-]){option}", _is_no_number, as_written=as_written)
    return context._replace(before=regex(rf"(?<![\w-])(?:{programs})(?![\w-])", re.IGNORECASE))


def _before(name: str, option: str = "") -> str:
    found = option + NAMES[name][1]
    return rf"{found}\Z" if found else ""


CONTEXTS = {
    "assignments": tuple(
        _context(
            'NAME=VALUE, NAME: VALUE, NAME => VALUE, "NAME": "VALUE"',
            name,
            rf"{name}{after}{_ENDING}{_IS}({_PHRASE}|{_VALUE})",
            _is_no_phrase if name == "credential" else _is_not_plain if name in _MAY_BE_PLAIN else _is_no_remark,
            _before(name),
        )
        for name, (after, _) in NAMES.items()
    ),
    "variables that end in _KEY, _PAT, _AUTH or _DSN": (
        _context(
            "OPENAI_KEY=VALUE, GITHUB_PAT=VALUE",
            "_key=|_pat=|_auth=|_dsn=",
            rf"_(?:KEY|PAT|AUTH|DSN)=[\"']?({_VALUE})",
            _is_not_plain,
            r"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]*\Z",
            as_written=True,
        ),
    ),
    "short names for a password": tuple(
        _context(
            "pass=VALUE, pw: VALUE",
            name,
            rf"""{name}(?<![a-z_-]{name})["']?\s{{0,5}}[:=]\s{{0,5}}["']?({_VALUE})""",
            _is_odd,
        )
        for name in ("pass", "pw")
    ),
    "variables that begin with TOKEN_, SECRET_ or PASSWORD_": (
        _context(
            "TOKEN_GITHUB=VALUE",
            "token_|secret_|password_",
            rf"(?P<name>(?:TOKEN|SECRET|PASSWORD)_[A-Z0-9_]{{1,40}})=(?:{_PHRASE}|[\"']?({_VALUE}))",
            as_written=True,
        ),
    ),
    "pairs of a name and a value": tuple(
        _context(
            "('NAME', 'VALUE')",
            name,
            rf"""{name}{after}{_ENDING}["'],\s{{0,3}}b?["']([^"'\r\n]{{4,500}})["']""",
            _is_odd,
            _before(name),
        )
        for name, (after, _) in NAMES.items()
    ),
    "command-line options": tuple(
        _context(
            "--NAME VALUE",
            name,
            rf"{name}{after}{_ENDING}{_SEP}({_PHRASE}|{_VALUE})",
            _is_no_placeholder if name in _MAY_BE_PLAIN else _is_no_name,
            _before(name, r"(?<![\w-])--?(?:[a-z0-9]+[_-])*"),
        )
        for name, (after, _) in NAMES.items()
    ),
    "commands that set a value": tuple(
        _context(
            "setenv NAME VALUE, ENV NAME VALUE, aws configure set NAME VALUE",
            f"{sign} |{sign}\n" if sign in ("env", "arg") else sign,
            rf"{command}\s+(?P<name>[\w.:/-]{{2,100}}){_SEP}({_VALUE})",
            _is_odd,
        )
        for sign, command in (
            ("set", r"set(?<![a-z]set)(?:env)?(?:\s+-\w{1,3}){0,2}"),
            ("env", r"env(?<![a-z]env)"),
            ("arg", r"arg(?<![a-z]arg)"),
            ("modify", r"modify\s+\S{1,100}"),
        )
    ),
    "records with a name and a value": (
        _context(
            'name: NAME, value: VALUE; {"name": "NAME", "value": "VALUE"}',
            "value",
            r"""\b(?:name|key)["']?\s{0,5}[:=]\s{0,5}["']?(?P<name>[\w.-]{2,80})["']?[\s,]{1,40}["']?value"""
            rf"""["']?\s{{0,5}}[:=]\s{{0,5}}["']?({_PHRASE}|{_VALUE})""",
        ),
    ),
    "Kaggle credentials": (
        _context(
            '{"username": "USER", "key": "VALUE"}',
            '"key"',
            rf'"key"\s{{0,5}}:\s{{0,5}}"({_VALUE})"',
            _is_odd,
            r'"username"\s{0,5}:\s{0,5}"[^"]{0,100}"\s{0,5},\s{0,5}\Z',
        ),
    ),
    "XML elements": (_context("<NAME>VALUE</NAME>", "</", r"<(?P<name>[\w:.-]{2,80})>([^<>]{4,500})</"),),
    "lists of secrets": tuple(
        _context(
            'NAMES: ["VALUE", "VALUE"]',
            name,
            rf"""{name}s?["']?\s*[:=]\s*[\[{{(]([^\]}})\r\n]{{4,1000}})""",
            lambda value: ('"' in value or "'" in value) and "type" not in value,
            _before(name),
        )
        for name in ("password", "secret", "credential", "key")
    ),
    "sentences that contain a secret": tuple(
        _context(
            "NAME is VALUE, with password VALUE" if name not in ("token", "secret") else "token VALUE",
            name,
            rf"{name}[\"'`]?\s{{1,5}}{_BEING}[\"'`]?({_VALUE})",
            _is_long_and_odd if name in ("token", "secret") else _is_odd,
            _before(name),
        )
        for name in _SPOKEN
    ),
    "password prompts": (
        _context("Password for USER: VALUE", "password for", rf"password for \S{{1,100}}:\s{{1,5}}({_VALUE})", _is_odd),
    ),
    "netrc lines": (
        _context(
            "login USER password VALUE",
            "password",
            rf"\b(?:login|user)\s+\S{{1,200}}\s+(?:account\s+\S{{1,200}}\s+)?password\s+[\"']?({_WORD})",
        ),
    ),
    "request headers": (
        _context(
            "Authorization: Bearer VALUE",
            "authorization",
            rf"authorization{_IS}(?:{_LONG}\s+([^\s*][^\r\n']{{3,}})"
            rf"|(?:{_SHORT}\s+)?(?!(?:{_SHORT}|{_LONG})\s)({_VALUE}))",
        ),
        _context("Bearer VALUE", "bearer", r"""bearer\s+([^\s"'&,;\\]{8,})""", _is_no_word),
        _context("Cookie: VALUE", "cookie", r"""cookie["']?\s*:\s*["']?([^\s*"'][^\r\n"']{3,})"""),
        _context('"auth": "VALUE"', "auth", rf"""["']auth["']\s*:\s*["']({_VALUE})""", _is_odd),
    ),
    "credentials in URLs": (
        _context(
            "https://USER:VALUE@host, https://VALUE@host",
            "://",
            r"""://[^\s/:@]{0,200}:((?!\d{1,5}[/?#])[^\s"'<>]{1,500})(?=@)|(?<=http)s?://([^\s/:@]{16,200})(?=@)""",
        ),
        _context(
            "https%3A%2F%2FUSER%3AVALUE%40host", "%3a%2f%2f", r"%3a%2f%2f[^\s/:@%]{0,200}%3a([^\s/]{1,500}?)(?=%40)"
        ),
    ),
    "query parameters of URLs": (
        _context(
            "X-Amz-Signature=VALUE, X-Amz-Credential=VALUE",
            "amz-",
            rf"amz-(?:signature|credential|security-token){_IS}({_VALUE})",
        ),
        _context("X-Goog-Signature=VALUE", "goog-", rf"goog-(?:signature|credential){_IS}({_VALUE})"),
        _context("?sig=VALUE", "sig=|signature=", rf"(?:[?&]|&amp;|\\u0026)(?:sig|signature)=({_VALUE})"),
        _context("?key=VALUE", "key=", r"[?&]key=([\w-]{16,})"),
        _context("?auth=VALUE, ?pass=VALUE", "auth=|pass=|pw=", rf"[?&](?:auth|pass|pw)=({_VALUE})", _is_odd),
        _context("AWSAccessKeyId=VALUE", "awsaccesskeyid", rf"awsaccesskeyid{_IS}({_VALUE})"),
    ),
    "webhook URLs": (
        _context(
            "hooks.slack.com/services/VALUE",
            "hooks.slack.com",
            r"""hooks\.slack\.com(?:/|%2f)(?:[a-z]+(?:/|%2f))?([^\s"'<>]+)""",
        ),
        _context(
            "discord.com/api/webhooks/VALUE", "webhooks", r"(?:/|%2f)webhooks(?:/|%2f)(\d{1,25}(?:/|%2f)[\w-]{8,})"
        ),
        _context("webhook.office.com/VALUE", "webhook.office.com/", r"""webhook\.office\.com/([^\s"'<>]+)"""),
    ),
    "passwords in command lines and function calls": (
        _of_program(
            "curl -u USER:VALUE",
            "curl|wget|httpie|http |http\n|http'|xh |xh\n",
            "curl|wget|httpie|xh|http(?=[\\s'])",
            rf"(?:-[a-z]*u|-a|--user|--proxy-user|--auth)(?:{_SEP}|=)?[\"']?[^\s:\"'/]{{0,100}}:({_WORD})",
        ),
        _context(
            "sshpass -p VALUE",
            "sshpass",
            rf"""sshpass(?:{_SEP}-[a-oq-z]\S{{0,50}}){{0,3}}{_SEP}-p(?:{_SEP})?{_PASSWORD}""",
        ),
        _of_program(
            "mysql -pVALUE",
            "mysql|mariadb",
            "mysql|mysql(?:dump|admin|import|sh|show)|mariadb",
            rf"-p(?!(?:ath|ort|id|rofile|rint|rotocol|refix)\b){_PASSWORD}",
            as_written=True,
        ),
        _of_program(
            "docker login -p VALUE, mongosh -p VALUE",
            "login|mongo",
            r"(?:docker|podman|buildah|skopeo|helm|az|oc)(?=\s[\s\S]{0,80}?login)|mongo|mongosh|mongo(?:dump|restore)",
            rf"-p(?:{_SEP}|=){_PASSWORD}",
            as_written=True,
        ),
        _of_program("redis-cli -a VALUE", "redis-cli|valkey-cli", "redis-cli|valkey-cli", rf"-a{_SEP}{_PASSWORD}"),
        _of_program(
            "ldapsearch -w VALUE",
            "ldap",
            "ldap(?:search|modify|add|delete|whoami)",
            rf"-w{_SEP}{_PASSWORD}",
            as_written=True,
        ),
        _of_program("unzip -P VALUE", "zip|sqlcmd", "zip|unzip|sqlcmd", rf"-P(?:{_SEP})?{_PASSWORD}", as_written=True),
        _of_program("7z -pVALUE", "7z", "7z|7za|7zr", rf"-p{_PASSWORD}", as_written=True),
        _of_program(
            "smbclient -U USER%VALUE",
            "smb|rpcclient",
            "smbclient|smbget|rpcclient",
            rf"-u{_SEP}[^\s%]{{1,100}}%({_WORD})",
        ),
        _of_program("openssl -passin pass:VALUE", "openssl", "openssl", rf"-pass(?:in|out)?{_SEP}pass:({_WORD})"),
        _context(
            "wandb login VALUE",
            "login|authtoken|snyk",
            rf"""\b(?:wandb{_SEP}login|ngrok{_SEP}authtoken|add-authtoken|snyk{_SEP}auth)"""
            rf"""(?:{_SEP}--?[\w-]{{1,30}}(?:=[^\s"',]{{1,200}})?){{0,3}}{_SEP}([^\s"',-][^\s"',]{{7,500}})""",
            _is_odd,
        ),
        _context(
            "echo VALUE | docker login --password-stdin",
            "password-stdin",
            rf"""echo\s{{1,5}}(?:-n\s{{1,5}})?["']?({_WORD})["']?\s{{0,5}}\|[^|\r\n]{{1,200}}password-stdin""",
        ),
        _context(
            "echo VALUE | wandb login, wandb login <<< VALUE",
            "wandb login",
            rf"""(?:echo\s{{1,5}}["']?({_WORD})["']?\s{{0,5}}\|[^|\r\n]{{0,100}}wandb login"""
            rf"""|wandb login\s{{0,5}}<<<\s{{0,5}}{_PASSWORD})""",
        ),
        _context(
            "auth=('USER', 'VALUE'), HTTPBasicAuth('USER', 'VALUE')",
            "auth=(|auth(",
            r"""auth(?:=\(|\()\s{0,9}["'][^"'\r\n]{1,100}["']\s{0,9},\s{0,9}["']([^"'\r\n]{4,500})""",
        ),
        _context("IDENTIFIED BY 'VALUE'", "identified by", r"""identified by\s{1,9}["']([^"'\r\n]{3,500})"""),
        _context(
            "mc alias set NAME URL USER VALUE",
            "alias",
            rf"mc{_SEP}alias{_SEP}set{_SEP}\S{{1,60}}{_SEP}\S{{1,300}}{_SEP}\S{{1,200}}{_SEP}({_WORD})",
        ),
        _context('login("VALUE")', "login(", r"""login\(\s{0,9}["']([^"'\s]{16,500})""", _is_long_and_odd),
        _context(
            'wandb.login(key="VALUE")',
            "login(",
            r"""login\(\s{0,9}(?:key|token)\s{0,3}=\s{0,3}["']([^"'\r\n]{4,500})""",
        ),
    ),
}


# ---------------------------------------------------------------- forms of tokens


class TokenForm(NamedTuple):
    """The format of a service's tokens: strings of which each token contains one, and a pattern that matches the token.

    The group of `pattern` is the secret. `before` must match within the preceding 300 characters; its match belongs to
    the secret. `is_short`: a token may have less than LONG_TOKEN characters, or contain blanks.
    """

    signs: tuple[str, ...]
    pattern: re.Pattern[str]
    before: re.Pattern[str] | None = None
    is_short: bool = False


def _begins(*prefixes: str, rest: str, is_short: bool = False) -> TokenForm:
    begin = "|".join(map(re.escape, prefixes))
    return TokenForm(prefixes, regex(rf"(?<![A-Za-z0-9])((?:{begin}){rest})"), None, is_short)


def _looks(sign: str, pattern: str, *, is_short: bool = False) -> TokenForm:
    return TokenForm((sign,), regex(pattern), None, is_short)


SHORT_TOKEN, LONG_TOKEN = 11, 22  # least characters of a token, and of most
_HEX, _ALNUM, _ANY = "[0-9a-f]", "[A-Za-z0-9]", r"[A-Za-z0-9_-]"
_MIXED = r"(?=[A-Za-z_-]{0,50}\d)"
TOKEN_FORMS = {
    "private keys": _looks(
        "PRIVATE KEY",
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----([\s\S]*?)(?=-----END|\Z)"
        r"|\A((?:[A-Za-z0-9+/=]{16,}\s+)+)(?=-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)",
    ),
    "age": _begins("AGE-SECRET-KEY-1", rest="[A-Z0-9]{20,}"),
    "AI21, Langfuse, OpenAI, Anthropic, OpenRouter, DeepSeek": _begins(
        "sk-",
        rest=rf"(?:(?:ant|lf|or|proj|admin|svcacct)-|(?=[\w-]{{0,99}}(?:[A-Z]|[A-Za-z0-9]{{16}})|[a-z]*\d\w*\b(?!-))){_ANY}{{8,}}",
        is_short=True,
    ),
    "Airtable": _looks("pat", r"(?<![A-Za-z0-9])(pat[A-Za-z0-9]{14}\.[0-9a-f]{64})"),
    "Alibaba": _begins("LTAI", rest=f"{_ALNUM}{{17,}}", is_short=True),
    "Anyscale": _begins("esecret_", "aph0_", rest=f"{_ALNUM}{{20,}}"),
    "Artifactory": _begins("AKCp", "cmVmdGtu", rest=f"{_ALNUM}{{50,}}"),
    "Atlassian": _begins("ATATT3", "ATCTT3", "ATBB", "ATSTT3", rest="[A-Za-z0-9_=-]{24,}"),
    "AWS": _begins("AKIA", "ASIA", "ABIA", "ACCA", rest="[A-Z0-9_-]{12,}", is_short=True),
    "AWS Bedrock": _begins("ABSK", "bedrock-api-key-", rest="[A-Za-z0-9+/=]{20,}"),
    "Azure applications": _looks("Q~", r"(?<![\w~.-])([\w~.-]{3}\dQ~[\w~.-]{31,34})"),
    "Azure resources": _looks("JQQJ9", r"(?<![A-Za-z0-9])([A-Za-z0-9]{52}JQQJ9[A-Za-z0-9+/=]{20,})"),
    "Cerebras": _begins("csk-", rest=f"{_ALNUM}{{32,}}"),
    "Databricks": _begins("dapi", rest=f"{_HEX}{{32}}(?:-\\d)?"),
    "DigitalOcean": _begins("dop_v1_", "doo_v1_", "dor_v1_", rest=f"{_ALNUM}{{16,}}"),
    "Discord bots": TokenForm((".",), regex(r"(\.[\w-]{6}\.[\w-]{27,})"), regex(r"(?<![\w-])[MNO][\w-]{22,27}\Z")),
    "Docker Hub": _begins("dckr_pat_", "dckr_oat_", rest=f"{_ANY}{{8,}}", is_short=True),
    "Doppler": _looks(
        "dp.", r"(?<![A-Za-z0-9])(dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,})"
    ),
    "Dynatrace": _begins("dt0c01.", rest=r"[A-Z0-9a-z]{20,}\.[A-Z0-9a-z]{20,}"),
    "ElevenLabs": _begins("sk_", rest=f"{_HEX}{{48}}"),
    "Figma": _begins("figd_", rest=f"{_ANY}{{30,}}"),
    "Fireworks": _begins("fw_", rest=f"{_MIXED}{_ALNUM}{{22,}}"),
    "Fly.io": _begins("fo1_", "fm1_", "fm1r_", "fm1a_", "fm2_", rest="[A-Za-z0-9_+/=-]{40,}"),
    "GitHub": _begins("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", rest=f"{_ANY}{{8,}}", is_short=True),
    "GitLab": _begins(
        "glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glagent-", "glsoat-", "gloas-", "glft-", "glimt-", "GR1348941",
        rest=r"[\w.-]{8,}", is_short=True,
    ),
    "Google": _begins("AIza", rest=f"{_ANY}{{20,}}"),
    "Google OAuth": _begins("GOCSPX-", "ya29.", "1//0", rest=f"{_ANY}{{16,}}", is_short=True),
    "Grafana": _begins("glsa_", "glc_", "eyJrIjoi", rest="[A-Za-z0-9_+/=]{24,}"),
    "Groq": _begins("gsk_", rest=f"{_ANY}{{16,}}", is_short=True),
    "HashiCorp": _begins("hvs.", "hvb.", "hvr.", rest=f"{_ANY}{{16,}}", is_short=True),
    "HashiCorp Terraform": _looks(".atlasv1.", r"(?<![A-Za-z0-9])([A-Za-z0-9]{14}\.atlasv1\.[\w=-]{20,})"),
    "Heroku": _begins("HRKU-", rest=f"{_ANY}{{30,}}"),
    "Hugging Face": _looks(
        "hf_", r"(?<![A-Za-z0-9])(hf_(?:(?=[a-z]{0,40}[A-Z0-9])[A-Za-z0-9]{8,}|[a-z]{16,}))", is_short=True
    ),
    "Hugging Face organizations": _begins("api_org_", rest=f"{_ANY}{{16,}}"),
    "Jina": _begins("jina_", rest=f"{_ANY}{{30,}}"),
    "JWT": _looks("eyJ", r"(?<![\w-])(eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]{4,})?)", is_short=True),
    "Kaggle": _begins("KGAT_", rest=f"{_ALNUM}{{24,}}"),
    "Lambda": _looks("secret_", r"(?<![A-Za-z0-9])(secret_(?:[\w-]{1,80}\.[A-Za-z0-9]{24,}|[A-Za-z0-9]{43}(?!\w)))"),
    "LangSmith": _begins("lsv2_pt_", "lsv2_sk_", rest="[A-Za-z0-9_]{20,}"),
    "Linear": _begins("lin_api_", rest=f"{_ALNUM}{{30,}}"),
    "LlamaCloud": _begins("llx-", rest=f"{_ALNUM}{{30,}}"),
    "Mailchimp": _looks("-us", rf"(?<![A-Za-z0-9])({_HEX}{{32}}-us\d{{1,2}})(?!\w)"),
    "Mailgun": _looks("key-", rf"(?<![A-Za-z0-9-])(key-{_HEX}{{32}})(?!\w)"),
    "Modal": _begins("ak-", "as-", "wk-", "ws-", rest=rf"{_MIXED}{_ALNUM}{{22}}(?![\w-])"),
    "Neptune": _begins("eyJhcGlfYWRkcmVzcyI6", "eyJhcGlfdXJsIjo", rest="[A-Za-z0-9+/=_-]{20,}"),
    "New Relic": _begins("NRAK-", "NRII-", "NRJS-", "NRRA-", rest=f"{_ANY}{{19,}}"),
    "Notion": _begins("ntn_", rest=f"{_ALNUM}{{40,}}"),
    "npm": _begins("npm_", rest=f"{_ALNUM}{{30,}}"),
    "NVIDIA": _begins("nvapi-", rest=f"{_ANY}{{8,}}", is_short=True),
    "OpenShift": _begins("sha256~", rest=f"{_ANY}{{40,}}"),
    "Perplexity": _begins("pplx-", rest=f"{_ANY}{{16,}}", is_short=True),
    "Pinecone": _begins("pcsk_", rest="[A-Za-z0-9_]{20,}"),
    "PlanetScale": _begins("pscale_tkn_", "pscale_pw_", "pscale_oauth_", rest=r"[\w=.-]{30,}"),
    "Postman": _begins("PMAK-", rest=f"{_HEX}{{24}}-{_HEX}{{30,}}"),
    "Prefect": _begins("pnu_", "pnb_", rest=f"{_ALNUM}{{30,}}"),
    "Pulumi": _begins("pul-", rest=f"{_HEX}{{40}}"),
    "PyPI": _begins("pypi-AgE", rest=f"{_ANY}{{16,}}"),
    "Replicate": _begins("r8_", rest=f"{_ALNUM}{{16,}}", is_short=True),
    "RubyGems": _begins("rubygems_", rest=f"{_HEX}{{48}}"),
    "RunPod": _begins("rpa_", "rps_", rest=f"{_MIXED}{_ALNUM}{{20,}}"),
    "SendGrid": _looks("SG.", r"\b(SG\.[\w-]{16,}\.[\w-]{16,})"),
    "Brevo": _begins("xkeysib-", "xsmtpsib-", rest=f"{_ANY}{{30,}}"),
    "Sentry": _begins("sntryu_", "sntrys_", rest="[A-Za-z0-9_+/=-]{30,}"),
    "Shopify": _begins("shpat_", "shpca_", "shppa_", "shpss_", "shpua_", rest="[A-Fa-f0-9]{32}"),
    "Slack": _looks("xox", r"(?<![A-Za-z0-9])(xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{8,})", is_short=True),
    "Slack applications": _begins("xapp-", "xwfp-", rest=f"{_ANY}{{8,}}", is_short=True),
    "Square": _begins("sq0atp-", "sq0csp-", rest=f"{_ANY}{{20,}}"),
    "Stripe": _begins("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_", rest=f"{_ANY}{{8,}}", is_short=True),
    "Supabase": _begins("sbp_", "sb_secret_", rest=f"{_ANY}{{20,}}"),
    "Tailscale": _begins("tskey-", rest=f"{_ANY}{{8,}}", is_short=True),
    "Tavily": _begins("tvly-", rest=f"{_MIXED}{_ANY}{{20,}}"),
    "Telegram bots": _looks(":AA", r"(?<!\d)\d{6,12}:(AA[\w-]{30,})"),
    "Together": _begins("tgp_v1_", rest=f"{_ANY}{{20,}}"),
    "Twilio": _looks("SK", rf"(?<![A-Za-z0-9])(SK{_HEX}{{32}})(?!\w)"),
    "Vercel": _begins("vcp_", "vck_", rest=f"{_ALNUM}{{20,}}"),
    "Voyage": _begins("pa-", rest=rf"{_MIXED}{_ANY}{{43}}(?![\w-])"),
    "wandb": _begins("wandb_v1_", rest=f"{_ANY}{{20,}}"),
    "xAI": _begins("xai-", rest=f"{_ANY}{{16,}}", is_short=True),
}  # fmt: skip
