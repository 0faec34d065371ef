"""Files that a launch names, found in the folders above it; and options of what a file switches off."""

import json

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.reader import read
from traincast.launch.settings.beside import found_by_suffix

FULL = """model_name_or_path: meta-llama/Meta-Llama-3-8B
stage: sft
finetuning_type: full
per_device_train_batch_size: 2
cutoff_len: 2048
bf16: true
"""
STAGE_3 = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}


@pytest.mark.parametrize(
    ("stands", "name", "is_found"),
    [
        ("examples/deepspeed/z3.json", "examples/deepspeed/z3.json", True),
        ("deepspeed/z3.json", "examples/deepspeed/z3.json", True),  # a copy of a part of the repository
        ("runs/z3.json", "/home/me/LLaMA-Factory/examples/deepspeed/z3.json", True),  # beside the launch
        ("z3.json", "examples/deepspeed/z3.json", False),  # above it, and by its last name alone
        ("deepspeed/z2.json", "examples/deepspeed/z3.json", False),
    ],
)
def test_a_file_of_the_repository_is_found_by_the_end_of_its_path(tmp_path, stands, name, is_found):
    folder = tmp_path / "runs"
    folder.mkdir()
    file = tmp_path / stands
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(STAGE_3), encoding="utf-8")
    assert found_by_suffix(name, folder) == (file if is_found else None)


def test_a_launch_reads_the_configuration_that_ships_with_its_repository(tmp_path):
    (tmp_path / "examples/deepspeed").mkdir(parents=True)
    (tmp_path / "examples/deepspeed/z3.json").write_text(json.dumps(STAGE_3), encoding="utf-8")
    path = tmp_path / "examples/deepspeed/../run.yaml"
    path.write_text(f"{FULL}deepspeed: examples/deepspeed/z3.json\n", encoding="utf-8")
    assert read(path, READERS, "llama-factory").facts["zero"] == 3


@pytest.mark.parametrize(
    ("text", "unread"),
    [  # LLaMA-Factory 0.9.5, hparams/finetuning_args.py: options of GaLore, which `use_galore` switches on
        ("galore_rank: 16\ngalore_scale: 0.25\n", []),
        ("use_galore: false\ngalore_rank: 16\n", []),
        ("use_galore: true\ngalore_rank: 16\n", ["use_galore", "galore_rank"]),
        ("use_strange_sharding: false\nstrange_sharding_size: 4\n", []),
        ("strange_sharding_size: 4\n", ["strange_sharding_size"]),
    ],
)
def test_an_option_of_what_is_off_says_nothing(tmp_path, text, unread):
    (path := tmp_path / "run.yaml").write_text(FULL + text, encoding="utf-8")
    assert [each.setting for each in read(path, READERS, "llama-factory").unread] == unread


def test_a_file_that_is_missing_is_asked_for_with_all_else(tmp_path):
    (path := tmp_path / "run.yaml").write_text(f"{FULL}deepspeed: configs/z3.json\nuse_dora: true\n")
    with pytest.raises(tc.InputError) as caught:
        tc.check(path, "dgx-h100")
    asked = "\n".join(caught.value.problems)
    for wanted in ("configs/z3.json: there is no such file", "the number of GPUs", "use_dora: not read"):
        assert wanted in asked


def test_a_tpu_of_older_releases_of_accelerate_is_xla(tmp_path):
    """Accelerate before 0.27, utils/dataclasses.py, DistributedType.TPU."""
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: {}\nmixed_precision: bf16\nnum_processes: 8\n"
    )
    facts = []
    for name in ("TPU", "XLA"):
        (path := tmp_path / f"{name}.yaml").write_text(text.format(name), encoding="utf-8")
        facts.append(read(path, READERS, "accelerate").facts)
    assert facts[0] == facts[1]
    assert facts[0]["gpus"] == 8
