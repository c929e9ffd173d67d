"""The page of one image, from the live page."""

import json

import pytest

SUBJECT = {"model": {"name": "resnet20.shapes", "checkpoint": ""}, "data": "shapes"}
OTHER = SUBJECT | {"model": {"name": "vit_pico_patch4_32.shapes", "checkpoint": ""}}


def asked(client, request):
    return client.get("look", params={"request": request})


def test_two_models_on_one_page(client):
    response = asked(client, json.dumps({"subjects": [SUBJECT, OTHER], "image": 1}))
    assert response.status_code == 200
    assert "<article" in response.text
    assert "sha256" in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "{}",
        "[1]",
        json.dumps({"subjects": [], "image": 0}),
        json.dumps({"subjects": [3], "image": 0}),
        json.dumps({"subjects": [SUBJECT], "image": "x"}),
        json.dumps({"subjects": [SUBJECT], "image": 10**9}),
    ],
)
def test_what_the_page_does_not_send_is_refused(client, request_):
    assert asked(client, request_).status_code == 400
