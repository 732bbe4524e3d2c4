"""What botocore presigns, recorded: tests/recorded/botocore/VERSION.json.

Record it again, for a newer botocore, from the root of the repository:

    pip install botocore && python -m tests.unit.uploads.botocore_table

Every row is one input of `Request` and the URL that botocore made of it. The live comparison with the botocore of the
test environment is in tests/integration/test_uploads.py.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "recorded" / "botocore"
NOW = 1_748_781_296  # 2025-06-01 12:34:56 UTC
ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
R2 = "https://0123456789abcdef.r2.cloudflarestorage.com"
KEYS = (
    "model.safetensors",
    "runs/2025/my model (final).safetensors",
    "a+b~c&d=e?f#g%h",
    "ünïcödé/模型.bin",
    "//double//slash//",
    "/leading",
    "folder/",
    "../dots/./here",
    "quote'\"`$(x)\\;",
    "line\nbreak\ttab",
    "*[x]{y}|^<z>!,:@",
)
PLACES: tuple[tuple[str, str | None, str], ...] = (
    ("us-east-1", None, "virtual"),
    ("us-east-1", None, "path"),
    ("eu-central-1", None, "virtual"),
    ("cn-north-1", None, "virtual"),
    ("auto", R2, "path"),
    ("auto", R2, "virtual"),
    ("us-east-1", "http://127.0.0.1:9000", "path"),
    ("us-east-1", "https://storage.example.com:443/base/", "path"),
)


@dataclass(frozen=True)
class Request:
    """One input: an operation of the S3 client, and in `style` how the bucket is named (virtual or path)."""

    key: str | None
    region: str = "us-east-1"
    endpoint: str | None = None
    style: str = "virtual"
    bucket: str = "examplebucket"
    token: str | None = None
    expires: int = 900
    operation: str = "put_object"
    more: dict[str, Any] = field(default_factory=dict)


def requests() -> list[Request]:
    rows = [Request(key, *place) for key, place in product(KEYS, PLACES)]
    rows += [Request("k", token="IQoJb3JpZ2luX2Vj//+/==", expires=seconds) for seconds in (1, 900, 604800)]
    rows += [Request("k", "eu-west-1", style="path", bucket="my.dotted.bucket")]
    upload = {"UploadId": "2~abc/d=e+f.g_h-"}
    rows += [Request("a b/k", operation=name, token="T/+=") for name in ("get_object", "head_object", "delete_object")]
    rows += [Request("a b/k", operation="create_multipart_upload")]
    rows += [Request("a b/k", operation="upload_part", more={**upload, "PartNumber": n}) for n in (1, 10000)]
    rows += [Request("k", operation=f"{name}_multipart_upload", more=upload) for name in ("complete", "abort")]
    rows += [Request("k", operation="list_parts", more={**upload, "PartNumberMarker": 1000})]
    for style in ("path", "virtual"):
        rows += [Request(None, style=style, operation="list_multipart_uploads", more={"Prefix": "a b/ü"})]
    return rows


@cache  # one takes a quarter of a second
def client_of(region: str, endpoint: str | None, token: str | None, style: str) -> Any:
    """A client of the installed botocore."""
    import botocore.session
    from botocore.config import Config

    return botocore.session.Session().create_client(
        "s3",
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        aws_session_token=token,
        config=Config(signature_version="s3v4", s3={"addressing_style": style}),
    )


def presign_with_botocore(request: Request) -> str:
    """The URL that the installed botocore makes."""
    import unittest.mock

    client = client_of(request.region, request.endpoint, request.token, request.style)
    parameters = {"Bucket": request.bucket, **({"Key": request.key} if request.key else {}), **request.more}
    moment = datetime.fromtimestamp(NOW, timezone.utc)
    with unittest.mock.patch("botocore.auth.get_current_datetime", lambda *_: moment):
        url = client.generate_presigned_url(request.operation, Params=parameters, ExpiresIn=request.expires)
    assert isinstance(url, str)
    return url


def recorded() -> list[tuple[Request, str]]:
    """Every recorded input with botocore's URL, of all recorded versions."""
    rows = [row for file in sorted(FOLDER.glob("*.json")) for row in json.loads(file.read_text("utf-8"))]
    return [(Request(**row["request"]), row["url"]) for row in rows]


def record() -> None:
    import botocore

    rows = [{"request": asdict(each), "url": presign_with_botocore(each)} for each in requests()]
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    (FOLDER / f"{botocore.__version__}.json").write_text(f"[\n{text}\n]\n", "utf-8")


if __name__ == "__main__":
    record()
