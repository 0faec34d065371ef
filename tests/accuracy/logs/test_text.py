"""Numbers and lines of logs, and names of accelerators."""

import pytest

from normalise import published
from traincast.accuracy.logs.text import lines, number, whole_number
from traincast.accuracy.runs import run
from traincast.accuracy.runs.run import accelerators
from traincast.catalog.load import accelerator_called, accelerator_names


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6,667", 6667), ("1,234.5", 1234.5), ("1.234,5", 1234.5), ("1 234,5", 1234.5),
        ("1\u202f234.5", 1234.5), ("1'234.5", 1234.5),
        ("12,5", 12.5), ("0,123", 0.123), ("1234,5", 1234.5), ("1.5e3", 1500), (" 7 ", 7), ("1.234", 1.234),
        (".5", 0.5),
        ("nan", None), ("inf", None), ("1e999", None), ("", None), ("x", None), ("1,2,3", None),
        ("1.2.3", None),
    ],
)  # fmt: skip
def test_numbers_of_any_locale(text, value):
    assert number(text) == value


def test_whole_numbers():
    assert [whole_number(value) for value in ("8", 8, "8.0", 8.5, "0", "-1", None, True, "1e300", "x")] == [
        8,
        8,
        8,
    ] + [None] * 7


def test_prefixes_of_ranks_and_progress_bars():
    text = "[rank3]:[titan] a\r\n[default7]: b\n5: c\n[1,12]<stdout>:d\nplain: e\rbar"
    assert lines(text) == [
        ("3", "[titan] a"),
        ("7", "b"),
        ("5", "c"),
        ("12", "d"),
        ("", "plain: e"),
        ("", "bar"),
    ]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80"), ("NVIDIA H100 PCIe", "h100-pcie-80"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40"), ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("NVIDIA GH200 480GB", "gh200-96"), ("NVIDIA GH200 144GB HBM3e", "gh200-144"),
        ("NVIDIA H100 NVL", "h100-nvl-94"),
        ("NVIDIA GB200", "gb200-186"), ("NVIDIA B200", "b200-180"), ("NVIDIA H200", "h200-sxm-141"),
        ("AMD Instinct MI300X", "mi300x-192"),
        ("NVIDIA H100 80GB PCIe", "h100-pcie-80"), ("A100-PCIE-40GB", "a100-pcie-40"),
        ("tpuv5e", "tpu-v5e"), ("NVIDIA H100", None),
        ("Abacus", None),        ("NVIDIA A100", None),
    ],
)  # fmt: skip
def test_accelerators_by_what_they_call_themselves(name, known):
    assert accelerator_called(name) == known


def test_accelerators_that_are_named_can_be_read():
    table = next(row for row in published() if row["id"] == "korth-008")
    for name in accelerators():
        assert run.read_run(table | {"gpu": name}).system
    assert set(accelerator_names()) >= set(accelerators())
