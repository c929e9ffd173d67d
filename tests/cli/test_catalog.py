"""``visprism models``, ``data``, ``anatomy`` and ``recipes``: what they list."""

import runpy
from pathlib import Path

import pytest
import torch

from visprism import MODELS
from visprism.cli import main
from visprism.cli.catalog import read_catalog
from visprism.models.pretrained import pretrained_cards

PROJECT = Path(__file__).parents[2]
SMALL_VIT = "timm:vit_tiny_patch16_224?img_size=32&patch_size=8&depth=2&num_classes=10"


@pytest.fixture(scope="module")
def entry_of():
    return runpy.run_path(str(PROJECT / "benchmarks" / "zoo_catalog.py"))["entry_of"]


def test_the_catalog_lists_the_zoo_with_its_descriptions():
    catalog = read_catalog()
    assert list(catalog) == list(MODELS)
    for name, entry in catalog.items():
        assert entry.description == (MODELS[name].__doc__ or "").strip().partition("\n")[0]


@pytest.mark.parametrize("name", ["resnet20", "vit_pico_patch4_32"])
def test_the_catalog_states_what_a_network_costs(name, entry_of):
    assert read_catalog()[name] == entry_of(name)


@pytest.mark.sweep
def test_the_catalog_states_what_every_network_costs(entry_of):
    assert read_catalog() == {name: entry_of(name) for name in MODELS}


def test_models_lists_parameters_macs_source_and_weights(capsys):
    assert main(["models"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "model"
    rows = {line.split()[0]: line.split() for line in lines[: len(MODELS)]}
    assert set(rows) == set(MODELS)
    assert rows["resnet20"][1:4] == ["272,474", f"{read_catalog()['resnet20'].macs:,}", "zoo"]
    for card in pretrained_cards().values():
        assert card.tag in " ".join(rows[card.architecture][4:])


def test_a_pattern_searches_all_sources(capsys):
    assert main(["models", "DeiT3_small_patch16_224*"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["timm:deit3_small_patch16_224", "-", "-", "timm", "-"] in lines


def test_models_cost_measures(capsys):
    assert main(["models", "resnet20", "--cost", "--batch-size", "2"]) == 0
    header, line, remark = capsys.readouterr().out.splitlines()
    assert header.split() == ["model", "image", "parameters", "MACs", "images/s"]
    name, size, parameters, macs, speed = line.split()
    assert (name, size, parameters) == ("resnet20", "32x32", "272,474")
    assert int(macs.replace(",", "")) == pytest.approx(41e6, rel=0.02)  # as published: 41 M
    assert float(speed) > 0
    threads = torch.get_num_threads()
    assert "batches of 2 in fp32" in remark
    assert (f"{threads} threads" if threads > 1 else "1 thread of") in remark


def test_anatomy_prints_a_row_for_each_block_and_writes_a_table_and_a_figure(tmp_path, capsys):
    assert main(["anatomy", SMALL_VIT, "--out", str(tmp_path)]) == 0
    assert {p.suffix for p in tmp_path.iterdir()} >= {".npz", ".csv", ".svg"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["block", "kind", "stage", "output", "parameters", "MACs"]
    kinds = [line.split()[1] for line in lines[2:-1]]
    assert kinds == ["stem", "attention", "mlp", "attention", "mlp", "head"]
    assert lines[2].split()[3] == "192x4x4"
