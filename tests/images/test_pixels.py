"""Laws of decoding: every kind of file becomes the same RGB, or is reported."""

import resource
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from visprism.images.pixels import decode, fault, to_rgb

GRAY = np.array([[0, 51], [102, 255]], np.uint8)


def encoded(image, kind="PNG", **options):
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(content):
    image = decode(content)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("bits", [8, 16])
def test_gray_is_equal_in_all_channels_however_many_bits_it_has(bits):
    values = GRAY if bits == 8 else GRAY.astype(np.uint16) * 257
    assert (pixels(encoded(Image.fromarray(values))) == GRAY[..., None]).all()


def test_black_and_white_reach_both_ends():
    bilevel = Image.fromarray(GRAY > 100)
    assert pixels(encoded(bilevel))[..., 0].tolist() == [[0, 0], [255, 255]]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_shows_white(mode):
    image = Image.new(mode, (2, 1), 0)
    solid = (10, 255) if mode == "LA" else (10, 10, 10, 255)
    image.putpixel((0, 0), solid)
    assert pixels(encoded(image)).tolist() == [[[10] * 3, [255] * 3]]


def test_a_palette_is_looked_up_and_its_transparent_color_is_white():
    image = Image.new("P", (3, 1))
    image.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
    image.putdata([0, 1, 2])
    expected = [[[200, 0, 0], [0, 200, 0], [0, 0, 200]]]
    assert pixels(encoded(image)).tolist() == expected
    with_key = pixels(encoded(image, transparency=1)).tolist()
    assert with_key == [[[200, 0, 0], [255] * 3, [0, 0, 200]]]
    by_alpha = pixels(encoded(image, transparency=bytes([255, 0, 255]))).tolist()
    assert by_alpha == with_key


def test_cmyk_ink_takes_light_away():
    inks = [(0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 255)]  # paper, cyan, black
    image = Image.new("CMYK", (24, 8))
    for i, ink in enumerate(inks):
        image.paste(ink, (8 * i, 0, 8 * i + 8, 8))
    seen = pixels(encoded(image, "JPEG", quality=95))[4, [4, 12, 20]].astype(int)
    # Within what JPEG loses.
    assert np.abs(seen - [[255] * 3, [0, 255, 255], [0] * 3]).max() < 8


@pytest.mark.parametrize(
    ("orientation", "stored"),  # how a camera held this way stores it (EXIF 2.3, sec. 4.6.4)
    [(3, Image.Transpose.ROTATE_180), (5, Image.Transpose.TRANSPOSE),
     (6, Image.Transpose.ROTATE_90)],
)  # fmt: skip
def test_a_turned_photograph_is_put_upright(orientation, stored, photo):
    upright = photo(6, 4)
    turned = upright.transpose(stored)
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert decode(encoded(turned, exif=exif)).tobytes() == upright.tobytes()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_truncated_file_is_found_out_and_a_whole_one_is_not(kind, photo):
    content = encoded(photo(64, 64), kind)
    assert fault(content) is None
    for part in (content[: len(content) // 2], content[:20]):
        assert fault(part)
        with pytest.raises(ValueError, match="an image cannot be read"):
            decode(part)


def test_floating_point_pixels_and_more_than_sixteen_bits_have_no_white():
    with pytest.raises(ValueError, match="must be integers, got floating-point"):
        to_rgb(Image.fromarray(np.ones((2, 2), np.float32)))
    with pytest.raises(ValueError, match="at most 65535, got 70000"):
        to_rgb(Image.fromarray(np.array([[0, 70000]], np.int32)))


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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="exceeds limit"):
        decode(png(30_000, 30_000))
    assert "exceeds limit" in fault(png(30_000, 30_000))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # kB
