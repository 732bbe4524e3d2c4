"""A Hugging Face hub on the loopback interface, for the real `hf` and `huggingface-cli` to talk to (HF_ENDPOINT).

Served is what an upload of a model asks for: create a repository and a branch, preupload, LFS batch with its PUT, the
commit, the listing of the tree (in pages) and the information about a model. Xet is not: HF_HUB_DISABLE_XET=1 goes
with it; the real hub takes what the client chooses.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]

TOKEN = "hf_loopbacktokenloopbacktoken"
PAGE = 3  # files on one page of a listing
LFS_ENDINGS = (".safetensors", ".bin", ".pt")


def blob_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class HubFile:
    """One file of a repository; LFS files are listed with their sha256."""

    path: str
    data: bytes
    lfs: bool = False

    @property
    def oid(self) -> str:
        return hashlib.sha256(self.data).hexdigest() if self.lfs else blob_hash(self.data)

    def row(self) -> Json:
        row = {"type": "file", "oid": blob_hash(self.data), "size": len(self.data), "path": self.path}
        return {**row, "lfs": {"oid": self.oid, "size": len(self.data), "pointerSize": 130}} if self.lfs else row


@dataclass
class Repo:
    private: bool
    branches: dict[str, dict[str, HubFile]] = field(default_factory=lambda: {"main": {}})
    commits: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_GET  # noqa: N815

    def _serve(self) -> None:
        hub = cast("_Server", self.server).hub
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        request = f"{self.command} {unquote(address.path)}"
        hub.requests.append(request)
        if hub.failures and (status := hub.failures.pop(0)):
            self._reply(status, {"error": "something broke"})
            return
        if not address.path.startswith("/lfs/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._reply(401, {"error": "Invalid username or password."}, {"X-Error-Message": "Invalid credentials"})
            return
        for pattern, act in hub.routes:
            if found := re.fullmatch(pattern, f"{self.command} {address.path}"):
                self._reply(*act(body, address.query, *(unquote(each) for each in found.groups() if each)))
                return
        self._reply(404, {"error": f"no such endpoint: {request}"})

    def _reply(self, status: int, answer: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        super().__init__(("127.0.0.1", 0), _Handler)


Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]]


class Hub:
    """The server, its repositories, and the faults that a test can set at any time.

    `failures` are HTTP statuses for the next requests (0: answer this one). `refused` holds repositories that may not
    be written. `corrupt` changes the content of LFS files that arrive; `before_put` is called before each.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.lfs: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.requests: list[str] = []
        self.failures: list[int] = []
        self.refused: set[str] = set()
        self.corrupt = False
        self.before_put: Callable[[], object] = lambda: None
        repo = r"([^/]+/[^/]+)"
        self.routes: list[tuple[str, Callable[..., Reply]]] = [
            (r"GET /api/whoami-v2", lambda *_: (200, {"type": "user", "name": "loopback", "orgs": []})),
            (r"POST /api/validate-yaml", lambda *_: (200, {"errors": [], "warnings": []})),
            (r"POST /api/repos/create", self._create),
            (rf"GET /api/models/{repo}(?:/revision/([^/]+))?", self._info),
            (rf"POST /api/models/{repo}/branch/([^/]+)", self._branch),
            (rf"POST /api/models/{repo}/preupload/([^/]+)", self._preupload),
            (rf"POST /api/models/{repo}/commit/([^/]+)", self._commit),
            (rf"GET /api/models/{repo}/tree/([^/]+)", self._tree),
            (r"POST /([^/]+/[^/]+)\.git/info/lfs/objects/batch", self._batch),
            (r"PUT /lfs/([0-9a-f]{64})", self._put),
        ]
        self._server = _Server(self)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.environ = {"HF_ENDPOINT": self.address, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        self.environ["HF_HUB_DISABLE_UPDATE_CHECK"] = "1"  # else it asks pypi.org first

    def __enter__(self) -> Hub:  # noqa: PYI034 (Self is not in Python 3.10)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def files(self, repo: str, branch: str = "main") -> dict[str, bytes]:
        """What a repository holds."""
        return {path: file.data for path, file in self.repos[repo].branches[branch].items()}

    def add(self, repo: str, path: str, data: bytes) -> None:
        """A file that somebody else has put there."""
        self.repos.setdefault(repo, Repo(True)).branches["main"][path] = HubFile(path, data)

    def _create(self, body: bytes, _query: str) -> Reply:
        asked = json.loads(body)
        name = f"{asked.get('organization') or 'loopback'}/{asked['name']}"
        if name in self.repos:
            return 409, {"error": "You already created this model repo", "url": f"{self.address}/{name}"}
        if name in self.refused:
            return 403, {"error": "You don't have the rights to create a model under this namespace"}
        private = bool(asked.get("private")) or asked.get("visibility") == "private"  # by the version of the client
        self.repos[name] = Repo(private)
        return 200, {"url": f"{self.address}/{name}", "name": name, "id": name}

    def _files(self, repo: str, branch: str) -> dict[str, HubFile] | None:
        return self.repos[repo].branches.get(branch) if repo in self.repos else None

    def _missing(self, repo: str) -> Reply:
        code = "RevisionNotFound" if repo in self.repos else "RepoNotFound"
        return 404, {"error": code}, {"X-Error-Code": code}

    def _info(self, _body: bytes, _query: str, repo: str, branch: str = "main") -> Reply:
        if self._files(repo, branch) is None:
            return self._missing(repo)
        here = self.repos[repo]
        return 200, {"id": repo, "modelId": repo, "sha": "0" * 40, "private": here.private, "tags": [], "siblings": []}

    def _branch(self, _body: bytes, _query: str, repo: str, branch: str) -> Reply:
        self.repos[repo].branches[branch] = dict(self.repos[repo].branches["main"])
        return 200, {}

    def _preupload(self, body: bytes, _query: str, repo: str, branch: str) -> Reply:
        there = self._files(repo, branch)
        if there is None:
            return self._missing(repo)
        if repo in self.refused:
            return 403, {"error": "You don't have the rights to write to this repo"}
        rows = []
        for file in json.loads(body)["files"]:
            path = file["path"]
            mode = "lfs" if path.endswith(LFS_ENDINGS) else "regular"
            oid = there[path].oid if path in there else None
            rows.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return 200, {"files": rows}

    def _batch(self, body: bytes, _query: str, _repo: str) -> Reply:
        rows: list[Json] = []
        for each in json.loads(body)["objects"]:
            row = {"oid": each["oid"], "size": each["size"]}
            if each["oid"] not in self.lfs:
                row["actions"] = {"upload": {"href": f"{self.address}/lfs/{each['oid']}"}}
            rows.append(row)
        return 200, {"transfer": "basic", "objects": rows}

    def _put(self, body: bytes, _query: str, oid: str) -> Reply:
        self.puts.append(oid)
        self.before_put()
        self.lfs[oid] = body[:-1] + b"?" if self.corrupt else body
        return 200, {}

    def _commit(self, body: bytes, _query: str, repo: str, branch: str) -> Reply:
        there = self._files(repo, branch)
        if there is None:
            return self._missing(repo)
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                there[value["path"]] = HubFile(value["path"], base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                there[value["path"]] = HubFile(value["path"], self.lfs[value["oid"]], lfs=True)
            elif line["key"] == "header":
                self.repos[repo].commits.append(value["summary"])
        return 200, {"success": True, "commitOid": "1" * 40, "commitUrl": f"{self.address}/{repo}/commit/{'1' * 40}"}

    def _tree(self, _body: bytes, query: str, repo: str, branch: str) -> Reply:
        there = self._files(repo, branch)
        if there is None:
            return self._missing(repo)
        start = int(parse_qs(query).get("cursor", ["0"])[0])
        rows = [there[path].row() for path in sorted(there)]
        following = f"{self.address}/api/models/{repo}/tree/{branch}?recursive=true&cursor={start + PAGE}"
        headers = {"Link": f'<{following}>; rel="next"'} if start + PAGE < len(rows) else {}
        return 200, rows[start : start + PAGE], headers
