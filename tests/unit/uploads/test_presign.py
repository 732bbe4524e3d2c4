"""Presigned URLs: equal to botocore's, and to Amazon's published example."""

from __future__ import annotations

import pytest

from tests.unit.uploads.botocore_table import ACCESS_KEY, NOW, R2, SECRET_KEY, Request, recorded, requests
from training_monitor.core.errors import SettingsError
from training_monitor.uploads.presign import Storage, presign_upload

METHODS = {
    "put_object": "PUT",
    "upload_part": "PUT",
    "get_object": "GET",
    "list_parts": "GET",
    "list_multipart_uploads": "GET",
    "head_object": "HEAD",
    "delete_object": "DELETE",
    "abort_multipart_upload": "DELETE",
    "create_multipart_upload": "POST",
    "complete_multipart_upload": "POST",
}
QUERIES = {"UploadId": "uploadId", "PartNumber": "partNumber", "PartNumberMarker": "part-number-marker"}


def presign(request: Request) -> str:
    """The URL that we make of the same input."""
    place = (request.bucket, request.key or "any", request.region, request.endpoint)
    storage = Storage(*place, ACCESS_KEY, SECRET_KEY, request.token, request.style == "path")
    query = {QUERIES[name]: str(value) for name, value in request.more.items() if name in QUERIES}
    if request.operation == "create_multipart_upload":
        query = {"uploads": ""}
    if request.key is None:
        query = {"uploads": "", "prefix": request.more["Prefix"]}
    method = METHODS[request.operation]
    return storage.sign(method, query, expires=request.expires, now=NOW, whole_bucket=request.key is None)


@pytest.fixture
def storage() -> Storage:
    return Storage("examplebucket", "k", access_key=ACCESS_KEY, secret_key=SECRET_KEY)


class TestEquality:
    def test_amazons_published_example(self) -> None:
        url = presign_upload(
            "examplebucket",
            "test.txt",
            region="us-east-1",
            access_key="AKIAIOSFODNN7EXAMPLE",
            secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            expires=86400,
            now=1_369_353_600,  # 20130524T000000Z
            method="GET",
        )
        assert url == (
            "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
            "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
            "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
            "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        )

    def test_what_botocore_makes_of_the_same_input(self, subtests: pytest.Subtests) -> None:
        assert {str(request) for request, _ in recorded()} == {str(request) for request in requests()}
        for request_, url in recorded():
            with subtests.test(request_=request_, url=url):
                assert presign(request_) == url


class TestDefaults:
    def test_an_endpoint_of_ones_own_or_a_dotted_bucket_has_the_bucket_in_the_path(self) -> None:
        url = presign_upload("b-ucket", "k", region="auto", endpoint_url=R2, access_key="a", secret_key="s")
        assert url.startswith(f"{R2}/b-ucket/k?") and "X-Amz-Expires=900" in url
        url = presign_upload("my.bucket", "k", access_key="a", secret_key="s")
        assert url.startswith("https://s3.amazonaws.com/my.bucket/k?")

    def test_credentials_and_region_of_the_environment(self, monkeypatch: pytest.MonkeyPatch, storage: Storage) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        url = presign_upload("examplebucket", "k", now=NOW)
        assert "X-Amz-Security-Token=token" in url and "examplebucket.s3.eu-west-1.amazonaws.com" in url
        assert "Security-Token" not in storage.sign("PUT")  # the token belongs to the keys of the environment

    def test_the_address_names_no_secret(self, storage: Storage) -> None:
        assert storage.address == "s3://examplebucket/k"
        assert Storage("bucket", "k", "auto", R2).address == f"{R2}/bucket/k"
        assert SECRET_KEY not in repr(storage)


class TestWrongInput:
    @pytest.mark.parametrize("bucket", ["", "a", "-bucket", "buck et", "a/b/c", "x" * 300, "bucket\n"])
    def test_buckets(self, bucket: str) -> None:
        with pytest.raises(SettingsError):
            Storage(bucket, "k")

    @pytest.mark.parametrize("key", ["", "a\0b", "ü" * 513, "\udcff"])
    def test_keys(self, key: str) -> None:
        with pytest.raises(SettingsError):
            Storage("bucket", key)

    @pytest.mark.parametrize(
        "url", ["storage.example.com", "ftp://x", "https://u:pw@x", "https://x/?q=1", "https://x y"]
    )
    def test_endpoints_are_not_repeated(self, url: str) -> None:
        with pytest.raises(SettingsError) as caught:
            Storage("bucket", "k", endpoint_url=url)
        assert url not in str(caught.value)

    @pytest.mark.parametrize("expires", [0, -1, 604_801, True, 1.5, "900"])
    def test_times(self, storage: Storage, expires: int) -> None:
        with pytest.raises(SettingsError):
            storage.sign("PUT", expires=expires)

    def test_methods_regions_keys(self, storage: Storage) -> None:
        for wrong in (
            lambda: storage.sign("PATCH"),
            lambda: Storage("bucket", "k", region="eu west"),
            lambda: Storage("bucket", "k", region="auto"),
            lambda: Storage("bucket", "k", access_key="alone"),
        ):
            with pytest.raises(SettingsError):
                wrong()

    def test_no_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "only-this-one")
        with pytest.raises(SettingsError) as caught:
            presign_upload("bucket", "k")
        assert "only-this-one" not in str(caught.value)
