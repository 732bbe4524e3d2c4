"""Compute presigned URLs for S3 and compatible storage (Cloudflare R2): Signature Version 4.

Anyone who has a presigned URL can make one request until it expires, without any credentials: it is a secret. Nothing
here makes a request, and no error contains a key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import quote, urlencode, urlsplit

from training_monitor.core.errors import SettingsError
from training_monitor.core.fields import PublicValue
from training_monitor.core.regex import regex

DEFAULT_EXPIRES = 900
MAX_EXPIRES = 604_800
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")
DEFAULT_REGION = "us-east-1"
_BUCKET = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_KEY = regex(r"[^\0\ud800-\udfff]+")
_HOST_LABEL = regex(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_REGION = regex(r"[a-z0-9][a-z0-9-]{0,62}")
_ENDPOINT = regex(r"https?://[A-Za-z0-9._\-\[\]:]+(?:/[A-Za-z0-9._~/-]*)?")


@dataclass(frozen=True, slots=True, repr=False)
class Storage(PublicValue):
    """One object in a bucket, and the credentials for it. Values that are None are read from the environment when used.

    The variables are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN (only together with the keys),
    AWS_REGION and AWS_ENDPOINT_URL. `endpoint_url` is for storage other than Amazon's. For R2, it is
    https://ACCOUNT.r2.cloudflarestorage.com, and the region is `auto`. If `path_style` is true, the bucket is part of
    the path. If it is None, this is the case with a custom endpoint, and if the bucket's name cannot be part of a host
    name.
    """

    bucket: str
    key: str
    region: str | None = None
    endpoint_url: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool | None = None

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise SettingsError("bucket", self.bucket, "a name of 3 to 255 letters, digits, '.', '_' and '-'")
        if not 1 <= len(self.key.encode("utf-8", "replace")) <= 1024 or not _KEY.fullmatch(self.key):
            raise SettingsError("key", self.key[:100], "an object name of 1 to 1024 UTF-8 bytes without NUL")
        if self.region is not None and not _REGION.fullmatch(self.region):
            raise SettingsError("region", self.region, "a region such as us-east-1, or auto for R2")
        if self.region == "auto" and self.endpoint is None:
            raise SettingsError("region", self.region, "endpoint_url as well: https://ACCOUNT.r2.cloudflarestorage.com")
        if self.endpoint is not None and not _ENDPOINT.fullmatch(self.endpoint):
            raise SettingsError("endpoint_url", "(not shown)", "https://HOST without a user name, password or query")
        if (self.access_key is None) != (self.secret_key is None):
            raise SettingsError("credentials", "(not shown)", "both an access key and a secret key, or neither")

    @property
    def endpoint(self) -> str | None:
        """Return the storage's URL if it is not Amazon's: the argument, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL."""
        named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return self.endpoint_url or named or None

    @property
    def address(self) -> str:
        """Return the address of the object for display, without secrets."""
        if self.endpoint is None:
            return f"s3://{self.bucket}/{self.key}"
        return f"{self.endpoint.rstrip('/')}/{self.bucket}/{self.key}"

    def sign(
        self,
        method: str,
        query: Mapping[str, str] | None = None,
        *,
        expires: int = DEFAULT_EXPIRES,
        now: float | None = None,
        whole_bucket: bool = False,
    ) -> str:
        """Presign one request.

        Args:
            query: additional parameters that are signed with the request, such as `uploadId` and `partNumber` for the
                PUT of one part. A parameter may be empty (`uploads`).
            expires: seconds until the URL expires, 1 to 604800 (a week).
            now: the time of signing in epoch seconds; default: the time by this machine's clock.
            whole_bucket: whether the request is for the bucket instead of the object.

        Returns:
            The URL, which must be kept secret.

        Raises:
            SettingsError: the method or a time is invalid, or there are no credentials.
        """
        if method not in METHODS:
            raise SettingsError("method", method, ", ".join(METHODS))
        if isinstance(expires, bool) or not isinstance(expires, int) or not 1 <= expires <= MAX_EXPIRES:
            raise SettingsError("expires", expires, f"a whole number of seconds from 1 to {MAX_EXPIRES}")
        access_key, secret_key, token = _credentials(self)
        moment = datetime.now(timezone.utc) if now is None else datetime.fromtimestamp(now, timezone.utc)
        region = self.region or os.environ.get("AWS_REGION") or DEFAULT_REGION
        scope = f"{moment:%Y%m%d}/{region}/s3/aws4_request"
        asked = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{access_key}/{scope}",
            "X-Amz-Date": f"{moment:%Y%m%dT%H%M%SZ}",
            "X-Amz-Expires": str(expires),
            "X-Amz-SignedHeaders": "host",
        }
        if token:
            asked["X-Amz-Security-Token"] = token
        base, host, path = _place(self, region, "" if whole_bucket else self.key)
        parameters = {**(query or {}), **asked}
        line = _encode_query(sorted(parameters.items()))
        request = f"{method}\n{path}\n{line}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
        signature = _signature(secret_key, scope, asked["X-Amz-Date"], request)
        return f"{base}{path}?{_encode_query(parameters.items())}&X-Amz-Signature={signature}"


def presign_upload(
    bucket: str,
    key: str,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    expires: int = DEFAULT_EXPIRES,
    now: float | None = None,
    method: str = "PUT",
    path_style: bool | None = None,
) -> str:
    """Presign the upload of one object, or another request for it with a different `method`.

    Args:
        bucket, key, region, endpoint_url, path_style: see `Storage`. For R2, use the endpoint of your account and the
            region `auto`.
        access_key, secret_key, session_token: default: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
        expires: seconds until the URL expires, 1 to 604800; default: 15 minutes.
        now: the time of signing in epoch seconds; default: the current time.
        method: GET, HEAD, PUT, POST or DELETE.

    Returns:
        The URL. Anyone who has the URL can send the request, so treat it as a secret.

    Raises:
        SettingsError: an argument is invalid, or there are no credentials.
    """
    storage = Storage(bucket, key, region, endpoint_url, access_key, secret_key, session_token, path_style)
    return storage.sign(method, expires=expires, now=now)


def _credentials(storage: Storage) -> tuple[str, str, str | None]:
    if storage.access_key and storage.secret_key:
        return storage.access_key, storage.secret_key, storage.session_token
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        raise SettingsError(
            "credentials", None, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or both keys as arguments"
        )
    return access_key, secret_key, storage.session_token or os.environ.get("AWS_SESSION_TOKEN")


def _place(storage: Storage, region: str, key: str) -> tuple[str, str, str]:
    """Return a request's scheme and authority, its host, and its encoded path."""
    amazon = "s3" if region == DEFAULT_REGION else f"s3.{region}"
    address = urlsplit(storage.endpoint or f"https://{amazon}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}")
    in_path = storage.path_style
    if in_path is None:
        in_path = storage.endpoint is not None or not _HOST_LABEL.fullmatch(storage.bucket)
    host = address.netloc if in_path else f"{storage.bucket}.{address.netloc}"
    path = address.path.rstrip("/") + (f"/{storage.bucket}" if in_path else "")
    path = f"{path}/{quote(key, safe='/~')}" if key or not in_path else path
    default_port = {"https": ":443", "http": ":80"}[address.scheme]
    return f"{address.scheme}://{host}", host.removesuffix(default_port), path


def _encode_query(parameters: Iterable[tuple[str, str]]) -> str:
    return urlencode(list(parameters), quote_via=quote, safe="~")


def _signature(secret_key: str, scope: str, moment: str, request: str) -> str:
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{secret_key}".encode()
    for word in scope.split("/"):
        key = _hmac(key, word)
    return _hmac(key, text).hex()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
