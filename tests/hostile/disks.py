"""Small disks of their own, to be full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """Make a folder that is a disk of this size."""
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(folder)]
    tried = subprocess.run(mount, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted: nothing here was tested ({tried.stderr.strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(disk: Path) -> None:
    """Leave no free byte on a disk."""
    with open(disk / "fill", "wb") as file:
        file.write(bytes(os.statvfs(disk).f_bavail * 4096))
