"""Untrusted files: none runs code, none takes more memory than its size, all end in a sentence.

What checkpoints may name is tested in models/test_untrusted_names.py, what reaches a page in
report/test_page.py, and images in images/test_pixels.py and images/test_tables.py. See
docs/security.md.
"""

import csv
import io
import json
import os
import pickle
import resource
import struct
import zipfile
from argparse import Namespace
from dataclasses import asdict, dataclass

import numpy as np
import pytest
import torch
from torch import nn

from visprism import (
    InputError,
    MSAConfig,
    Provenance,
    Result,
    Texts,
    column,
    load_checkpoint,
    load_model,
    read_metadata,
    result_type,
    save_checkpoint,
)
from visprism.harmonize.alternet import save_alternet
from visprism.training.recipe import read_recipe

_RUN = "ran"  # the file that an attack would make


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function, *args):
        self.reduced = function, args

    def __reduce__(self):
        return self.reduced


def memory():
    """The most memory that this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def attacks(path):
    """Ways around a list of forbidden names, by name."""
    import builtins
    import os

    return {
        "open": Calls(open, str(path), "w"),
        "system": Calls(os.system, f"touch {path}"),
        "import": Calls(builtins.__import__, "os"),
        "getattr": Calls(getattr, Namespace(a=1), "a"),
        "pickle": Calls(pickle.loads, pickle.dumps(Calls(open, str(path), "w"))),
        "module": nn.Linear(1, 1),
    }


STREAMS = {  # written by hand
    "memo": b"\x80\x02cposix\nsystem\nq\x00h\x00X\x05\x00\x00\x00touch\x85R.",
    # Protocol 4 looks up a dotted name in parts: torch.serialization has imported os.
    "dotted name": b"\x80\x04\x8c\x05torch\x8c\x17serialization.os.system\x93.",
    "build": b"\x80\x02cargparse\nNamespace\n)\x81}"
    b"X\x09\x00\x00\x00__class__cposix\nsystem\nsb.",
    "callable key": b"\x80\x02}cposix\nsystem\nK\x01s.",
}


@pytest.mark.parametrize("attack", [*attacks(""), *STREAMS])
@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
def test_no_pickle_runs_code(tmp_path, attack, form):
    ran = tmp_path / _RUN
    stream = STREAMS.get(attack)
    path = tmp_path / "a.pt"
    if stream is None:
        content = {"state_dict": {"weight": attacks(ran)[attack]}}
        if form == "pickle":
            path.write_bytes(pickle.dumps(content, protocol=2))
        else:
            torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    elif form == "zip":
        torch.save({}, path)
        with zipfile.ZipFile(path) as archive:
            members = {m.filename: archive.read(m) for m in archive.infolist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, stream if name.endswith("data.pkl") else data)
    else:
        path.write_bytes(stream)
    with pytest.raises(InputError, match=r"a\.pt (was refused|is damaged)"):
        load_checkpoint(nn.Linear(1, 1), path)
    assert not ran.exists()


@pytest.mark.parametrize(
    "tensor",
    [
        lambda: torch.zeros(1).expand(10**9),
        lambda: torch.zeros(2, 2).to_sparse(),
        lambda: torch.zeros(2, 2, device="meta"),
    ],
    ids=["expanded", "sparse", "meta"],
)
def test_tensors_that_claim_more_than_they_hold_are_refused(tmp_path, tensor):
    torch.save({"weight": tensor()}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"\(weight\) are not dense tensors"):
        load_checkpoint(nn.Linear(1, 1), tmp_path / "a.pt")


def bomb(path, members, size):
    """An archive of compressed zeros: about a thousandth of what it grows to."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, head in members.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(head)
                for _ in range(size // 2**20):
                    member.write(bytes(2**20))


def npy_head(shape, descr="<f8"):
    file = io.BytesIO()
    fields = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


@result_type("test-found")
class Found(Result):
    """A column and a scalar."""

    value: np.ndarray = column("Value", "nats")
    names: Texts = column("Names")
    words: str = "some"


def saved(path):
    names = np.array(["a", "", "b"])
    Found(value=np.arange(3.0), names=names, provenance=Provenance(model="net")).save(path)
    with np.load(path) as stored:
        return dict(stored)


@pytest.mark.parametrize("read", [Found.load, lambda p: load_checkpoint(nn.Linear(1, 1), p)])
def test_an_archive_that_grows_is_refused_before_it_is_read(tmp_path, read):
    path = tmp_path / "a.npz"
    size = 16 * 2**20
    bomb(path, {"value.npy": npy_head((size // 8,)), "archive/data.pkl": b""}, size)
    assert path.stat().st_size < size / 100
    before = memory()
    with pytest.raises(InputError, match="must be an archive without compression"):
        read(path)
    assert memory() - before < size / 2


def test_an_archive_whose_members_overlap_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", bytes(1000))
    raw = path.read_bytes()
    start = raw.index(b"PK\x01\x02")
    end = raw.index(b"PK\x05\x06")
    entry, tail = raw[start:end], bytearray(raw[end:])
    struct.pack_into("<HHI", tail, 8, 50, 50, 50 * len(entry))
    path.write_bytes(raw[:start] + entry * 50 + bytes(tail))
    with pytest.raises(InputError, match="must be an archive without compression"):
        Found.load(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"__type__": None}, "must be a file that Result.save wrote"),
        ({"__type__": "posix.system"}, r"must hold a Found, got a posix\.system"),
        ({"__provenance__": None}, "must be a file that Result.save wrote"),
        ({"__provenance__": "{"}, "does not hold a valid provenance"),
        ({"__provenance__": "[" * 100_000}, "does not hold a valid provenance"),
        ({"__provenance__": "[]"}, "does not hold a valid provenance"),
        (
            {"__provenance__": json.dumps(asdict(Provenance()) | {"seed": "a"})},
            r"Expected `int`, got `str` - at `\$\.seed`",
        ),
        ({"value": None}, "missing 1 required .* 'value'"),
        ({"value": 3.0}, "value must be a column, got 3"),
        ({"value": np.array(["a", "b", "c"])}, r"value must be numbers .*, got <U1"),
        ({"value": np.zeros(3, complex)}, r"value must be numbers .*, got complex128"),
        ({"value": np.zeros(3, "M8[D]")}, r"value must be numbers .*, got datetime64"),
        ({"value": np.zeros(3, "U0")}, "value must be numbers"),
        ({"names": np.zeros(3)}, "names must be texts, got float64"),
        ({"names": np.array(["a"])}, "must have one length"),
        ({"value": np.zeros((2, 2))}, "must have one axis, got value"),
        ({"value": np.array(["a", {}], dtype=object)}, "cannot be read as a result"),
        ({"words": 3}, "words must be a str, got 3"),
        ({"words": ["a", "b", "c"]}, "words must be a str"),
    ],
)
def test_a_tampered_result_is_refused(tmp_path, change, reason):
    path = tmp_path / "a.npz"
    content = {k: v for k, v in (saved(path) | change).items() if v is not None}
    np.savez(path, allow_pickle=True, **content)
    with pytest.raises(InputError, match=rf"a\.npz .*{reason}"):
        Found.load(path)


def test_a_pipe_is_no_result(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"must be a file that Result\.save wrote"):
        Found.load(tmp_path / "a.npz")


def test_an_array_of_objects_does_not_run(tmp_path):
    path = tmp_path / "a.npz"
    attack = np.array([Calls(open, str(tmp_path / _RUN), "w")], dtype=object)
    np.savez(path, allow_pickle=True, **(saved(path) | {"value": attack}))
    with pytest.raises(InputError, match="cannot be read as a result"):
        Found.load(path)
    assert not (tmp_path / _RUN).exists()


def test_an_array_that_claims_a_huge_shape_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    saved(path)
    with zipfile.ZipFile(path) as archive:
        members = {m.filename: archive.read(m) for m in archive.infolist()}
    members["value.npy"] = npy_head((10**15,)) + bytes(8)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(InputError, match=r"a\.npz cannot be read as a result"):
        Found.load(path)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_table_is_a_formula(tmp_path, start):
    @dataclass(frozen=True)
    class Named(Result):
        name: Texts
        value: np.ndarray

    text = f'{start}HYPERLINK("http://example.org")'
    Named(name=np.array([text, "a=b"]), value=np.array([-1.5, 2.0])).save_csv(
        tmp_path / "a.csv"
    )
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["name", "value"], [f"'{text}", "-1.5"], ["a=b", "2.0"]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 10**9) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}      ',
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}      ',
        struct.pack("<Q", 60)
        + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}      ' * 2,
        struct.pack("<Q", 8) + b'{"a":1}  ',
    ],
)
def test_a_malformed_header_is_refused(tmp_path, content):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    for read in (read_metadata, lambda p: load_checkpoint(nn.Linear(1, 1), p)):
        with pytest.raises(InputError, match=r"was refused: it is not a safetensors file"):
            read(path)


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch ran']",
        "lr: !!python/name:os.system",
        "lr: !!python/object/new:os.system ['touch ran']",
        "epochs: 2020-99-99",
        "[" * 200_000,
        "a: &a [x, x]\nb: &b [*a, *a]\nepochs: [*b, *b]",
    ],
)
def test_a_recipe_holds_values_only(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(f"base: quick\n{text}" if ":" in text[:8] else text)
    with pytest.raises(InputError, match=r"the recipe .*a\.yaml"):
        read_recipe(tmp_path / "a.yaml")
    assert not (tmp_path / _RUN).exists()


def test_a_file_name_is_no_code_in_a_converted_network(tmp_path):
    loaded = load_model("resnet20")
    attack = '""";open("ran", "w");"""'
    saved = save_alternet(
        nn.Linear(1, 1),
        loaded,
        tmp_path,
        cnn=f"resnet20@{attack}.pt",
        names=[attack, "\\", '"', "\n"],
        msa=MSAConfig(head_dim=8),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["alternet.safetensors"]
    with pytest.raises(
        InputError, match="which is refused: blocks must be a number, a boolean, a"
    ):
        load_model(saved)
    assert not (tmp_path / _RUN).exists()


@pytest.mark.parametrize("folder", ["", "/"])
def test_a_converted_network_must_not_name_the_code_of_its_cnn(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(f"open({_RUN!r}, 'w')\ndef net(): pass\n")
    base = f"{tmp_path / 'net.py' if folder else 'net.py'}:net"
    provenance = Provenance(model=f"alternet?base={base}&blocks=none")
    save_checkpoint(nn.Linear(1, 1), tmp_path / "a.safetensors", provenance=provenance)
    with pytest.raises(InputError, match="which is refused: base must be a number, a boolean"):
        load_model(str(tmp_path / "a.safetensors"))
    assert not (tmp_path / _RUN).exists()
