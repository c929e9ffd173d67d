"""Untrusted data: images and Parquet files that are damaged, or made to do damage."""

import io
import json
import resource
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from visprism import InputError, load_data
from visprism.images.decode import decode, fault


def memory():
    """The most memory that this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# Images.


def png(width, height):
    """A PNG of one color, some thousand times smaller than its pixels."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def test_a_decompression_bomb_is_refused_before_it_is_decoded():
    bytes_before = memory()
    with pytest.raises(InputError, match="exceeds limit"):
        decode(png(30_000, 30_000))
    assert "exceeds limit" in fault(png(30_000, 30_000))
    assert memory() - bytes_before < 2**28


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_truncated_image_is_refused(kind):
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    content = file.getvalue()
    decode(content)
    for part in (content[: len(content) // 2], content[:20], b""):
        assert fault(part)
        with pytest.raises(InputError, match="an image cannot be read"):
            decode(part)


# Parquet.


def table(path, *, labels=(0, 1), notes=None):
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    cells = [{"bytes": file.getvalue(), "path": None}] * len(labels)
    content = pa.table({"img": cells, "label": pa.array(labels)})
    if notes is not None:
        content = content.replace_schema_metadata({"huggingface": notes})
    parquet.write_table(content, path, compression="none")
    return path


@pytest.mark.parametrize(
    "notes",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"info": 3}',
        '{"info": {"features": 3}}',
        '{"info": {"features": {"img": 3}}}',
        '{"info": {"features": {"other": {"_type": "Image"}}}}',
    ],
)
def test_notes_in_a_parquet_file_that_say_nothing_are_passed_over(tmp_path, notes):
    path = table(tmp_path / "a.parquet", notes=notes)
    assert len(load_data(f"parquet:{path}")) == 2


@pytest.mark.parametrize(
    ("feature", "labels", "reason"),
    [
        ({"_type": "ClassLabel", "names": 3}, (0, 1), "must be a list of text, got 3"),
        ({"_type": "ClassLabel", "names": [1, 2]}, (0, 1), "must be a list of text"),
        (
            {"_type": "ClassLabel", "names": ["a", "b"]},
            ("x", "y"),
            "classes in .* cannot be read",
        ),
        ({}, (0, 10**15), "must be less than 1000000, got 1000000000000000"),
    ],
)
def test_classes_in_a_parquet_file_are_checked(tmp_path, feature, labels, reason):
    notes = json.dumps({"info": {"features": {"label": feature}}})
    path = table(tmp_path / "a.parquet", labels=labels, notes=notes)
    with pytest.raises(InputError, match=reason):
        load_data(f"parquet:{path}")


def test_a_parquet_file_damaged_anywhere_ends_in_a_sentence(tmp_path):
    content = table(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "b.parquet"
    ends = []
    for at in range(4, len(content), 7):
        path.write_bytes(content[:at] + b"\xff" * 3 + content[at + 3 :])
        try:
            ends.append(len(load_data(f"parquet:{path}")))
        except InputError as error:
            ends.append(str(error))
    assert set(map(type, ends)) == {int, str}  # some damage is seen, some is in padding
