"""The page's static files, read once, each with media type, entity tag and compressed form."""

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

MEDIA_TYPES: Final = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".map": "application/json",
    ".md": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
COMPRESSED_TYPES: Final = ("text/", "application/json", "application/manifest+json", "image/svg+xml")
MIN_COMPRESSED_BYTES: Final = 1024  # bytes from which compression pays


@dataclass(frozen=True)
class Body:
    """A response body with its media type."""

    content: bytes
    media_type: str

    @cached_property
    def etag(self) -> str:
        """Return an entity tag that changes with the content."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'

    @cached_property
    def compressed(self) -> bytes | None:
        """Return the content compressed with gzip, or None where that does not pay."""
        pays = len(self.content) >= MIN_COMPRESSED_BYTES and self.media_type.startswith(COMPRESSED_TYPES)
        return gzip.compress(self.content, 6, mtime=0) if pays else None


def static_files() -> Mapping[str, Body]:
    """Return every file of the page by its path under ``static/``."""
    return dict(_under(files("traincast").joinpath("ui", "explorer", "static"), ""))


def _under(folder: Traversable, prefix: str) -> list[tuple[str, Body]]:
    """Return the files of a folder and of its subfolders."""
    entries: list[tuple[str, Body]] = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            entries += _under(entry, f"{prefix}{entry.name}/")
        else:
            entries.append((f"{prefix}{entry.name}", Body(entry.read_bytes(), _type_of(entry.name))))
    return entries


def _type_of(name: str) -> str:
    """Return the media type of a file by its ending."""
    ending = f".{name.rpartition('.')[2]}"
    return MEDIA_TYPES.get(ending) or mimetypes.types_map.get(ending, "application/octet-stream")
