"""The versions that answers carry: they change with what answers follow from, and with nothing else."""

import re

from traincast.catalog import digests as module
from traincast.catalog.digests import DATA, MODEL, Versions, digest_of


def test_versions_are_digests_of_data_and_model():
    found = Versions.of_installation()
    assert re.fullmatch("[0-9a-f]{12}", found.data)
    assert re.fullmatch("[0-9a-f]{12}", found.model)
    assert found.data != found.model


def test_a_figure_of_the_catalogue_changes_the_version_of_the_data_only(tmp_path, monkeypatch):
    for name, text in {
        "catalog/a.yaml": "rate: 1\n",
        "catalog/b.py": "x = 1\n",
        "step/c.py": "y = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(module, "files", lambda _: tmp_path)
    digest = digest_of.__wrapped__  # what is cached on disk belongs to the installed package

    def digests():
        return digest(("catalog",), ".yaml"), digest(("catalog", "step"), ".py")

    before = digests()
    assert digests() == before
    (tmp_path / "catalog/a.yaml").write_text("rate: 2\n")
    data, model = digests()
    assert data != before[0]
    assert model == before[1]
    (tmp_path / "step/c.py").write_text("y = 2\n")
    assert digests()[0] == data
    assert digests()[1] != model


def test_packages_of_the_versions_exist():
    assert all(digest_of((package,), ".py") != digest_of((), ".py") for package in (*DATA, *MODEL))
