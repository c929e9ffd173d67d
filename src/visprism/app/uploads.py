"""Uploads: images that are decoded and stored again, checkpoints that the safe loader reads."""

import io
import warnings
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from visprism.app.settings import CHECKPOINT_SUFFIXES, Settings
from visprism.core.errors import InputError
from visprism.core.files import atomic_write, slug
from visprism.images.pixels import to_rgb
from visprism.models.state_dicts import read_state_dict

_SIDE = 1024  # of a stored image, in pixels
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")


def store_image(settings: Settings, set_name: str, name: str, body: bytes) -> Path:
    """Decode an image, and store its pixels as PNG under a name that a file can have."""
    folder = settings.uploaded_images / _file_name(set_name, "images")
    if sum(1 for _ in folder.glob("*.png")) >= settings.limits.images:
        raise InputError(f"a set must have at most {settings.limits.images} images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(body), formats=_FORMATS)
            picture.draft("RGB", (_SIDE, _SIDE))
            picture = to_rgb(ImageOps.exif_transpose(picture))
    except (
        UnidentifiedImageError,
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ):
        raise InputError(
            f"an upload must be an image ({', '.join(_FORMATS)}), got {name[:80]!r}"
        ) from None
    picture.thumbnail((_SIDE, _SIDE))
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    path = folder / f"{_file_name(Path(name).stem, 'image')}.png"
    return _stored(settings, path, encoded.getvalue())


def store_checkpoint(settings: Settings, name: str, body: bytes) -> Path:
    """Store a checkpoint that the safe loader can read; see docs/security.md."""
    suffix = Path(name).suffix.lower()
    if suffix not in CHECKPOINT_SUFFIXES:
        allowed = ", ".join(sorted(CHECKPOINT_SUFFIXES))
        raise InputError(f"a checkpoint must be a file with {allowed}, got {name[:80]!r}")
    stem = _file_name(Path(name).stem, "checkpoint")
    path = settings.uploaded_checkpoints / f"{stem}{suffix}"
    unchecked = _stored(settings, path.with_name(f".{path.name}.unchecked{suffix}"), body)
    try:
        read_state_dict(unchecked)
        unchecked.replace(path)
    except InputError as error:
        raise InputError(str(error).replace(str(unchecked), path.name)) from error
    finally:
        unchecked.unlink(missing_ok=True)
    return path


def _stored(settings: Settings, path: Path, content: bytes) -> Path:
    folder = settings.workspace / "uploads"
    path.parent.mkdir(parents=True, exist_ok=True)
    used = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if used + len(content) > settings.limits.upload_bytes:
        most = settings.limits.upload_bytes / 2**20
        raise InputError(f"uploads must have at most {most:g} MiB together")
    with atomic_write(path) as scratch:
        scratch.write_bytes(content)
    return path


def _file_name(text: str, default: str) -> str:
    ascii_text = text.encode("ascii", "ignore").decode()
    return slug(ascii_text)[:60].strip("-.") if ascii_text.strip(" -.") else default
