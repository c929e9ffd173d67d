"""Models and data that tests of the app ask live panels about."""

VIT = {"model": {"name": "vit_pico_patch4_32.shapes"}, "data": "shapes"}
RESNET = {"model": {"name": "resnet20.shapes"}, "data": "shapes"}
