"""Laws of what is read, for any value: it survives a file, and damage is one sentence.

`VISPRISM_EXAMPLES=3000 pytest tests/test_properties.py` tries more examples.
"""

import json
import math
import os
import string
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

import visprism as vp
from visprism import Result, Texts, column, result_type, scalar
from visprism.cli.parser import parse
from visprism.core.errors import InputError
from visprism.core.files import read_fields, write_text, yaml_text
from visprism.core.options import Option, options_of
from visprism.models.spec import ModelSpec
from visprism.study.request import StudyRequest
from visprism.study.store import read_index
from visprism.study.study_file import write_study_file

settings.register_profile(
    "read",
    max_examples=int(os.environ.get("VISPRISM_EXAMPLES", "60")),
    derandomize="VISPRISM_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("read")

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ANY_TEXT = st.text(max_size=60)  # also surrogates and null characters
NAMES = st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=12)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=64)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


def sentence_of(action):
    """The value, and the sentence of an `InputError`; anything else is a fault."""
    try:
        return action(), ""
    except InputError as error:
        text = str(error)
        assert text.strip()
        assert "Traceback" not in text
        return None, text


@st.composite
def changed(draw, content):
    """The bytes with a part that is flipped, deleted, doubled or cut off."""
    start = draw(st.integers(0, max(len(content) - 1, 0)))
    end = draw(st.sampled_from([start + 1, start + 2, start + 16, len(content)]))
    part = content[start:end]
    mask = draw(st.integers(1, 255))
    flipped = bytes(byte ^ mask for byte in part[:16]) + part[16:]
    return content[:start] + draw(st.sampled_from([flipped, b"", part * 2])) + content[end:]


@result_type("test-anything")
class Anything(Result):
    """A column of each kind."""

    name: Texts = column("Name")
    number: np.ndarray = column("Number")
    count: np.ndarray = column("Count")
    flag: np.ndarray = column("Flag")
    remark: str = scalar("Remark", "", "", default="")
    scale: float = scalar("Scale", "", "", default=1.0)


@st.composite
def results(draw):
    rows = draw(st.integers(0, 4))
    exactly = {"min_size": rows, "max_size": rows}
    return Anything(
        name=np.array(draw(st.lists(TEXT.map(lambda t: t.rstrip("\0")), **exactly)), dtype=str),
        number=np.array(draw(st.lists(FLOATS, **exactly)), dtype=float),
        count=np.array(
            draw(st.lists(st.integers(-(2**63), 2**63 - 1), **exactly)), dtype=np.int64
        ),
        flag=np.array(draw(st.lists(st.booleans(), **exactly)), dtype=bool),
        remark=draw(TEXT),
        scale=draw(FLOATS),
        provenance=vp.Provenance(
            model=draw(TEXT), data=draw(TEXT), seed=draw(st.integers(0, 9))
        ),
    )


@given(results())
def test_a_result_survives_a_file(tmp_path_factory, result):
    path = tmp_path_factory.getbasetemp() / "any.npz"
    result.save(path)
    read = vp.Result.load(path)
    assert read == result
    assert read.provenance == result.provenance
    result.save_csv(path.with_suffix(".csv"))


@given(st.data())
def test_a_changed_result_is_refused_or_the_same(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "changed.npz"
    result = data.draw(results())
    result.save(path)
    path.write_bytes(data.draw(changed(path.read_bytes())))
    read, sentence = sentence_of(lambda: vp.Result.load(path))
    assert sentence or (read == result and read.provenance == result.provenance)


ANALYSES = [name for name in vp.ANALYSES if vp.ANALYSES[name].default]
SIMPLE = st.text(string.ascii_letters + string.digits + " .-ÄßЖ漢", min_size=1, max_size=9)


@given(
    labels=st.lists(
        SIMPLE.map(str.strip).filter(bool), min_size=1, max_size=3, unique_by=str.casefold
    ),
    analyses=st.lists(st.sampled_from(ANALYSES), min_size=1, max_size=3, unique=True),
    limit=st.none() | st.integers(1, 10**6),
    seed=st.integers(0, 2**31 - 1),
    effort=st.sampled_from(["quick", "standard", "full"]),
    minutes=st.none() | st.floats(1e-3, 1e6),
    pretrained=st.sampled_from([None, True, False]),
)
def test_a_study_file_says_on_the_command_line_what_was_written(
    tmp_path_factory, labels, **values
):
    folder = tmp_path_factory.getbasetemp() / "file"
    folder.mkdir(exist_ok=True)
    models = {label: f"resnet{20 + 12 * i}" for i, label in enumerate(labels)}
    request = StudyRequest(models, "shapes", out=folder, **values)
    chosen = [vp.ANALYSES[name]() for name in values["analyses"]]
    write_study_file(folder, request, chosen, vp.Run(seed=values["seed"]))
    command, _ = parse(["examine", str(folder / "study.yaml"), "--out", str(folder)])
    assert command.labeled() == models
    for name, value in values.items():
        stated = tuple(value) if isinstance(value, list) else value
        default = getattr(type(command), name)
        assert getattr(command, name) == (default if value is None else stated), name


FIELDS = {"models": ["resnet20"], "data": "shapes", "out": "x", "limit": 3, "seed": 0}
CHANGED = changed(yaml_text(FIELDS).encode())


@given(CHANGED)
def test_a_changed_study_file_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "study.yml"
    path.write_bytes(content)
    fields, sentence = sentence_of(lambda: read_fields(path, "the study file", "data: shapes"))
    assert sentence or isinstance(fields, dict)
    command, sentence = sentence_of(lambda: parse(["examine", str(path)]))
    assert sentence or isinstance(command[0], vp.cli.study.Examine)


@given(st.dictionaries(TEXT, JSON, max_size=3), st.lists(TEXT, max_size=3), FLOATS)
def test_metadata_survive_a_checkpoint(tmp_path_factory, recipe, classes, accuracy):
    path = tmp_path_factory.getbasetemp() / "a.safetensors"
    network = nn.Linear(1, 1)
    stated = {"recipe": recipe, "class_names": classes, "metrics": {"accuracy": accuracy}}
    _, sentence = sentence_of(lambda: vp.save_checkpoint(network, path, **stated))
    if not sentence:
        read = vp.read_metadata(path)
        assert json.dumps(read.recipe) == json.dumps(recipe)
        assert list(read.class_names) == classes
        assert read.metrics["accuracy"] == accuracy or math.isnan(accuracy)
        vp.load_checkpoint(network, path)


@given(st.data())
def test_a_changed_checkpoint_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "b.safetensors"
    torch.manual_seed(0)
    vp.save_checkpoint(nn.Linear(2, 2), path, recipe={"lr": 0.1}, class_names=["a", "b"])
    path.write_bytes(data.draw(changed(path.read_bytes())))
    read, sentence = sentence_of(lambda: vp.read_metadata(path))
    assert sentence or isinstance(read.recipe, dict)
    sentence_of(lambda: vp.load_checkpoint(nn.Linear(2, 2), path))


@given(ANY_TEXT)
@example("a?b=1&b=2")
@example("zoo?" + "(" * 5000)
def test_any_text_is_a_model_or_one_sentence(text):
    spec, sentence = sentence_of(lambda: ModelSpec.parse(text))
    assert sentence or spec.text == text


LITERALS = st.integers() | st.booleans() | st.tuples(st.integers(), st.integers())


@given(
    st.sampled_from(["", "timm:", "torchvision:", "hf:"]),
    NAMES,
    st.dictionaries(NAMES.filter(str.isidentifier), LITERALS, max_size=3),
    st.none() | NAMES,
)
def test_a_model_is_parsed_as_it_is_written(prefix, name, arguments, file):
    query = "&".join(f"{key}={value}" for key, value in arguments.items())
    text = f"{prefix}{name}" + f"?{query}" * bool(query) + f"@{file}.pt" * bool(file)
    spec = ModelSpec.parse(text)
    assert (spec.source, spec.name) == (prefix[:-1] or "zoo", name)
    assert spec.arguments == arguments
    assert spec.checkpoint == (Path(f"{file}.pt") if file else None)


OPTIONS = [
    option
    for name in vp.ANALYSES
    for option in options_of(vp.ANALYSES[name]).values()
    if not option.names_files
]


@given(st.sampled_from(OPTIONS), ANY_TEXT | FLOATS.map(str) | st.integers().map(str))
def test_any_text_is_a_value_of_an_option_or_one_sentence(option: Option, text):
    value, sentence = sentence_of(lambda: option.parse(text))
    if not sentence:
        option.check(value)
    else:
        assert sentence.startswith(f"{option.name} must be ")


@given(st.sampled_from(OPTIONS))
def test_every_default_of_an_option_is_parsed_from_its_text(option: Option):
    for value in (option.default, *option.info.by_effort.values()):
        several = isinstance(value, tuple | list)
        text = ",".join(map(str, value)) if several else str(value)
        if text:  # none is given of several
            assert option.parse(text) == (tuple(value) if several else value)


@given(st.dictionaries(st.sampled_from(["format", "header", "entries", "x"]), JSON) | JSON)
@example({"format": 2, "header": {"keys": ["a"]}, "entries": {}})
@example({"format": 10**400, "header": {}, "entries": {}})
def test_any_json_is_an_index_or_one_sentence(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "study.json"
    write_text(path, json.dumps(content))
    index, sentence = sentence_of(lambda: read_index(path))
    assert sentence or isinstance(index["entries"], dict)


def saved_study(folder):
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    result = vp.calibration(vp.Predictions(logits, logits.argmax(1).roll(1)))
    entry = vp.Entry(models=("net",), analysis="calibration", results=(result,))
    vp.Study(("net",), (entry,), (), {"seed": 0, "positions": [1, 0]}).save(folder)


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    saved_study(folder)
    return folder, (folder / "study.json").read_bytes()


@given(st.data())
def test_a_changed_index_is_read_or_refused(study_folder, data):
    folder, content = study_folder
    (folder / "study.json").write_bytes(data.draw(changed(content)))
    study, sentence = sentence_of(lambda: vp.Study.load(folder))
    assert sentence.isprintable()
    if not sentence:
        assert study.to_markdown()
