"""Which files of a checkpoint are uploaded."""

from __future__ import annotations

from pathlib import Path

from training_monitor.targets.asking import ask
from training_monitor.uploads.checkpoint import _files_question


def test_weights_that_are_symbolic_links_are_uploaded_too(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"weights")
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").symlink_to("../blob")
    (folder / "gone.pt").symlink_to("nowhere")
    (folder / "all").symlink_to("/")
    [answer] = ask("local", _files_question(str(folder)))
    assert answer.get() == ["config.json", "model.safetensors"]
