"""Compare an upload with the hub, and choose the name of its card; runs on a target with huggingface_hub.

`card PLAN` prints the name under which to upload card.md: README.md, or INCOMPLETE.md beside a different README.md.
`list PLAN` prints one line per expected file: the local file, and the hub's.
LFS files are compared by sha256, others by their git blob hash.
"""

import hashlib
import json
import os
import sys
from pathlib import Path


def main(act, plan):
    there = list_repo(plan)
    if act == "card":
        name = card_name(there)
        Path("card-name").write_text(name)
        print(name)
        return
    expected = list(list_files(plan["inside"]))
    if Path("card-name").exists():
        expected.append((Path("card-name").read_text(), Path("card.md")))
    for name, file in expected:
        print(json.dumps(describe(name, file, there.get(name))))


def list_repo(plan):
    from huggingface_hub import HfApi

    listed = HfApi().list_repo_tree(plan["repo"], recursive=True, revision=plan["revision"])
    return {entry.path: entry for entry in listed if hasattr(entry, "blob_id")}


def card_name(there):
    card = Path("card.md")
    is_free = "README.md" not in there or there["README.md"].blob_id == digest(card, "blob")
    return "README.md" if is_free else "INCOMPLETE.md"


def list_files(inside):
    root = Path(os.environ["TM_PATH"])
    if root.is_file():
        yield inside, root
    for file in sorted(root.glob("**/*")) if root.is_dir() else ():
        if file.is_dir():
            os.listdir(file)  # the pattern leaves out what cannot be read
        parts = file.relative_to(root).parts
        if file.is_file() and not is_ignored(parts):
            yield "/".join(filter(None, [inside, *parts])), file


def is_ignored(parts):
    return ".git" in parts or parts[:2] == (".cache", "huggingface")


def describe(name, file, there):
    kind = "sha256" if there is not None and there.lfs else "blob"
    found = {"path": name, "size": file.stat().st_size, "hash": digest(file, kind)}
    if there is not None:
        found["held"] = {"size": there.size, "hash": there.lfs["sha256"] if there.lfs else there.blob_id}
    return found


def digest(file, kind):
    size = file.stat().st_size
    total = hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % size)
    with open(file, "rb") as stream:
        while block := stream.read(1 << 20):
            total.update(block)
    return total.hexdigest()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
