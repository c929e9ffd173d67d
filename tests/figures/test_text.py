"""Text fits into its room and nothing of it is lost."""

import pytest
from internals import caption, inches, title

LONG = "timm:vit_base_patch14_reg4_dinov2.lvd142m?img_size=224&num_classes=10"


@pytest.mark.parametrize("width", [0.5, 3.0, 20.0])
def test_no_line_is_wider_than_the_room(width):
    lines = title(LONG, width=width, size=9.0).split("\n")
    assert max(inches(line, 9.0) for line in lines) <= width
    assert "".join(lines) == LONG


@pytest.mark.parametrize(
    ("sentences", "text"),
    [
        (["net:a · 8 images", "net:b · 8 images"], "8 images · net:a · net:b"),
        (["a · 8 images · fp32", "b · 16 images · fp32"], "fp32 · a: 8 images · b: 16 images"),
    ],
)
def test_a_caption_says_once_what_all_models_share_and_names_those_that_differ(sentences, text):
    assert caption(sentences, ["a", "b"]) == text
