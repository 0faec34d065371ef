"""What is cached on disk equals what the files of the package say."""

import os
import pickle
import stat
import subprocess
import sys
from functools import cache

import pytest

import traincast as tc
from traincast.catalog import disk_cache, load
from traincast.catalog.software_stacks import Stack
from traincast.step.uncertainty import errors


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for kept results, empty at first."""
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(disk_cache, "_folder", cache(disk_cache._folder.__wrapped__))
    return tmp_path


def files(folder):
    return sorted(folder.rglob("*.pickle"))


@pytest.mark.parametrize(
    "read",
    [
        lambda: tc.load_model("DeepSeek-V3", seq=2048),
        lambda: tc.load_model("llama-3-70b"),
        lambda: tc.load_system("dgx-h100"),
        lambda: tc.load_system("h200-nvs16"),
        lambda: Stack.assumptions.func(Stack("megatron-core-2025")),
        errors.__wrapped__,
    ],
)
def test_a_cached_result_equals_that_of_the_files(folder, read):
    made = read()
    assert len(files(folder)) >= 1
    again = read()
    assert again == made
    assert again is not made
    if hasattr(made, "sources"):
        assert again.sources == made.sources


def test_what_is_cached_is_read_instead_of_files(folder, monkeypatch):
    model = tc.load_model("llama-3-8b")
    monkeypatch.setattr(load, "_model_file", None)  # would be called to read the file
    assert tc.load_model("llama-3-8b") == model
    with pytest.raises(TypeError):
        tc.load_model("llama-3-70b")


def test_files_of_the_user_are_not_kept(folder, tmp_path):
    file = tmp_path / "model.yaml"
    file.write_text("{name: small, layers: 2, hidden: 64, heads: 4, ffn: 256, seq: 128}")
    assert tc.load_model(file).layers == 2
    file.write_text("{name: small, layers: 3, hidden: 64, heads: 4, ffn: 256, seq: 128}")
    assert tc.load_model(file).layers == 3
    assert not files(folder)


def test_other_files_of_the_package_make_results_anew(folder, monkeypatch):
    tc.load_system("polaris")
    (old,) = files(folder)
    monkeypatch.setattr(disk_cache, "_fingerprint", lambda: "changed")
    disk_cache._folder.cache_clear()
    tc.load_system("polaris")
    assert [file.parent.name for file in files(folder)] == ["changed"]
    assert not old.exists()


def test_installations_keep_each_others_results(folder, monkeypatch):
    tc.load_system("polaris")
    (mine,) = files(folder)
    monkeypatch.setattr(disk_cache, "__file__", "/another/environment/catalog/disk_cache.py")
    monkeypatch.setattr(disk_cache, "_fingerprint", lambda: "another")
    disk_cache._folder.cache_clear()
    tc.load_system("polaris")
    assert len(files(folder)) == 2
    assert mine.exists()


def test_the_fingerprint_follows_the_files(monkeypatch, tmp_path):
    package = tmp_path / "package" / "catalog"
    (package / "models").mkdir(parents=True)
    file = package / "models" / "one.yaml"
    file.write_text("a: 1")
    monkeypatch.setattr(disk_cache, "__file__", str(package / "disk_cache.py"))
    before = disk_cache._fingerprint()
    (package / "notes.txt").write_text("not read")
    assert disk_cache._fingerprint() == before
    file.write_text("a: 12")
    assert disk_cache._fingerprint() != before


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"\x80\x04N."])
def test_a_damaged_file_is_made_anew(folder, content):
    system = tc.load_system("polaris")
    (file,) = files(folder)
    file.write_bytes(content)
    assert tc.load_system("polaris") == system
    assert file.read_bytes() != content


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners and modes on this system")
@pytest.mark.parametrize("writable", ["file", "folder"])
def test_what_others_can_write_is_not_read(folder, writable):
    """A pickle runs code when it is read; this one only says that it was."""
    system = tc.load_system("polaris")
    (file,) = files(folder)
    stored_key, _ = pickle.loads(file.read_bytes())
    file.write_bytes(pickle.dumps((stored_key, "put there")))
    assert tc.load_system("polaris") == "put there", "else this test could not fail"
    (file if writable == "file" else file.parent).chmod(0o777)
    assert tc.load_system("polaris") == system


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners and modes on this system")
def test_what_another_user_owns_is_not_read(folder, monkeypatch):
    system = tc.load_system("polaris")
    (file,) = files(folder)
    stored_key, _ = pickle.loads(file.read_bytes())
    file.write_bytes(pickle.dumps((stored_key, "put there")))
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert tc.load_system("polaris") == system


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners and modes on this system")
def test_the_folders_of_the_cache_are_the_users_alone(folder):
    tc.load_system("polaris")
    (file,) = files(folder)
    made = [file.parents[2], file.parents[1], file.parent]
    assert made[0].name == "traincast"
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3


@pytest.mark.parametrize("where", ["off", "/dev/null/no-folder"])
def test_results_need_not_be_kept(where):
    code = "import traincast as tc; print(tc.load_system('polaris').name)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={disk_cache.VARIABLE: where},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (run.stdout, run.stderr) == ("polaris\n", "")


def test_a_short_command_needs_neither_parser_nor_schema(folder):
    code = (
        "import sys, traincast as tc; tc.load_model('llama-3-70b'); tc.load_system('dgx-h100');"
        "print([name for name in ('pydantic', 'ruamel.yaml') if name in sys.modules])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs == ["['pydantic', 'ruamel.yaml']\n", "[]\n"]
