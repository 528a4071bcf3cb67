"""Folders as values: read, written, and as records of their pages."""

from __future__ import annotations

from pathlib import Path

from tests.powerloss.device import RECORD

PAGE_BYTES = 4096

Image = dict[str, bytes | None]  # relative path -> bytes, None for a folder


def read_folder(root: Path) -> tuple[Image, dict[int, str]]:
    """Everything below a folder, and the inode of each."""
    image: Image = {}
    inodes: dict[int, str] = {root.stat().st_ino: ""}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        image[name] = None if path.is_dir() else path.read_bytes()
        inodes[path.stat().st_ino] = name
    return image, inodes


def pages_of(root: Path) -> bytes:
    """Records of all pages as they are now; those that were recorded before change nothing."""
    records = []
    for path in sorted(root.rglob("*")):
        if path.is_file():
            content, inode = path.read_bytes(), path.stat().st_ino
            for at in range(0, len(content), PAGE_BYTES):
                page = content[at : at + PAGE_BYTES]
                records.append(RECORD.pack(ord("S"), 0, inode, at, len(page), len(page)) + page)
    return b"".join(records)


def write_folder(image: Image, root: Path) -> None:
    """The files of an image, in a new folder."""
    root.mkdir(parents=True)
    for name in sorted(image):
        content = image[name]
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)
