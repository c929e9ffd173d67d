"""Laws of registries (src/visprism/core/registry.py)."""

from importlib.metadata import EntryPoint

import pytest

from visprism.core import registry as module
from visprism.core.registry import Registry, load_plugins


@pytest.fixture
def models():
    registry = Registry("model", "visprism.core")
    registry.register(resnet20)
    return registry


def resnet20():
    return "a model"


def test_an_unknown_name_suggests_the_nearest(models):
    with pytest.raises(ValueError, match=r"unknown model 'resnet-20'. Did you mean resnet20\?"):
        models["resnet-20"]


def test_a_plugin_registers_what_it_offers_beside_a_broken_one(
    models, monkeypatch, tmp_path, caplog
):
    (tmp_path / "a_plugin.py").write_text(
        "import registry_under_test\n@registry_under_test.models.register\ndef plugged(): ...\n"
    )
    (tmp_path / "registry_under_test.py").write_text("models = None")
    (tmp_path / "ending.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    import registry_under_test

    registry_under_test.models = models
    named = {"broken": "absent", "ending": "ending", "no module": "bad/name", "a": "a_plugin"}
    plugins = [EntryPoint(*plugin, "visprism.plugins") for plugin in named.items()]
    monkeypatch.setattr(
        module, "entry_points", lambda group: plugins * (group == plugins[0].group)
    )
    load_plugins.cache_clear()
    try:
        assert list(models) == ["plugged", "resnet20"]
        assert "the plug-in broken is left out (ModuleNotFoundError: No module" in caplog.text
        assert "the plug-in ending is left out (SystemExit: 3)" in caplog.text
        assert "the plug-in no module is left out" in caplog.text
    finally:
        load_plugins.cache_clear()
