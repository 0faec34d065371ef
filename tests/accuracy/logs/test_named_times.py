"""Logs of MaxText, nanotron and Composer, in the form that their programs give them; figures are invented."""
# ruff: noqa: E501

import pytest

from log_files import row, written
from traincast.accuracy.logs.detect import read_times

GIVEN = {
    "model": "llama-3-8b", "gpu": "h100-sxm-80", "gpus": 16, "precision": "bf16", "tp": 1, "pp": 1, "mbs": 2,
    "gbs": 32, "seq": 4096, "zero": "3", "recompute": "none",
}  # fmt: skip
MAXTEXT = "completed step: {0}, seconds: 2.{0}50, TFLOP/s/device: 390.101, Tokens/s/device: 3855.059, total_weights: 131072, loss: 10.1\n"
NANOTRON = (
    "[INFO|DP=0]: [Start training]\n"
    "[INFO|DP=0]: mbs: 4 | grad_accum: 2 | cp: 1 | sequence_length: 8192 | global_batch_size: 128 | train_steps: 9\n"
)
ITERATION = "[INFO|DP=0]: iteration: {0} / 9 | consumed_tokens: 1.05M | time_per_iteration_ms: {1} | tokens_per_sec: 437K | tokens_per_sec_per_gpu: 27.3K | global_batch_size: 1.05M | lm_loss: 10.5\n"
COMPOSER = (
    "[epoch=1][batch={0}/20]:\n\t Train time/batch: {1}\n\t Train throughput/batches_per_sec: 0.5000\n"
    "\t Train throughput/samples_per_sec: 1{1}.0000\n\t Train throughput/device/samples_per_sec: 1.0000\n"
)


def test_seconds_of_maxtext(tmp_path):
    """src/maxtext/common/metric_logger.py: without the first 3, the median of 2.450 to 2.850 s."""
    text = "".join(MAXTEXT.format(step) for step in range(1, 9))
    cells = row(written(tmp_path, "run.log", text), **GIVEN)
    assert (cells["stack"], float(cells["step_seconds"]), cells["steps_measured"]) == ("MaxText", 2.65, "5")


@pytest.mark.parametrize(("time", "name", "seconds"), [("2.4K", "", 2.4), ("812", "elapsed_", 0.812)])
def test_milliseconds_of_nanotron(time, name, seconds, tmp_path):
    """trainer.py (2411b02 and before): three digits with K for a thousand; the first line states the batch."""
    lines = (ITERATION.replace("time_per", f"{name}time_per").format(i, time) for i in range(1, 9))
    given = {column: GIVEN[column] for column in GIVEN if column not in ("mbs", "gbs", "seq")}
    cells = row(written(tmp_path, "run.log", NANOTRON + "".join(lines)), **given)
    assert float(cells["step_seconds"]) == pytest.approx(seconds)
    assert [cells[column] for column in ("stack", "mbs", "gbs", "seq")] == ["nanotron", "4", "128", "8192"]


def test_samples_of_composer(tmp_path):
    """callbacks/speed_monitor.py: of all devices; 13 to 17 of them in a second, so 32 take 32/15 s."""
    text = "".join(COMPOSER.format(i + 1, i) for i in range(8))
    cells = row(written(tmp_path, "run.log", text), **GIVEN)
    assert (cells["stack"], float(cells["step_seconds"])) == ("Composer", pytest.approx(32 / 15))


PRIMUS = (  # its docs/04-technical-guides/hybrid-models/gdn-guide.md (fd1eeab): this step and the mean
    " iteration {0}/ 4768 | elapsed time per iteration (ms): 2{0}00.0/9999.9 | lm loss: 2.1 |\n"
)
OLD_DEEPSPEED = "[INFO] [timer.py:154:stop] 0/{0}, SamplesPerSec=1{0}.0\n"  # utils/timer.py until v0.3


@pytest.mark.parametrize(("line", "seconds"), [(PRIMUS, 2.6), (OLD_DEEPSPEED, 32 / 16)])
def test_other_forms_of_known_logs(line, seconds, tmp_path):
    text = "".join(line.format(step) for step in range(1, 9))  # the median of steps 4 to 8
    assert read_times(written(tmp_path, "run.log", text), GIVEN).seconds == pytest.approx(seconds)


def test_words_of_torchtitan_until_2024(tmp_path):
    """train.py until 4d182a1 wrote wps, of a device, for what is tps now."""
    lines = (
        f"[rank0]: step: {i:2}  loss: 9.1  memory: 42.08GiB(44.28%)  wps: 4,096  mfu: 40.00%\n"
        for i in range(1, 9)
    )
    cells = row(written(tmp_path, "run.log", "".join(lines)), **GIVEN)
    assert float(cells["step_seconds"]) == pytest.approx(32 * 4096 / 16 / 4096)
    assert float(cells["memory_gb_published"]) == 42.08
