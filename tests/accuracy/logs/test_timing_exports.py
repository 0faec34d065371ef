"""Step times that stand alone: MLPerf's logs, a Trainer's state, exports of Weights & Biases and TensorBoard.
Texts are in the form that the tools give them; every figure is invented."""

import json

import pytest

import traincast as tc
from log_files import written
from traincast.accuracy.fit.measured_files import read_measurements as read_measured
from traincast.accuracy.logs import TrainingRows, read

RUN = {
    "model": "llama-3-8b", "gpu": "h100-sxm-80", "gpus": 64, "precision": "bf16", "tp": 2, "pp": 1, "mbs": 1,
    "gbs": 128, "seq": 8192, "zero": 1, "recompute": "none",
}  # fmt: skip


def step(folder, name, text, warm_up=0, **given):
    reading = read(written(folder, name, text), warm_up=warm_up, **(RUN | given))
    assert isinstance(reading, TrainingRows)
    return reading.rows[0]


def mllog(key, value, **metadata):
    event = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f"0: :::MLLOG {json.dumps(event | {'metadata': metadata})}\n"


MLPERF = mllog("global_batch_size", 256) + mllog("max_sequence_length", 2048)


def test_mlperf_logs_state_batch_sequence_and_step_times(tmp_path):
    steps = "".join(
        mllog("tracked_stats", {"train_step_timing in s": t}, step=t) for t in (9.0, 3.0, 3.2, 3.1)
    )
    given = {"gbs": None, "seq": None, "warm_up": 1}
    row = step(tmp_path, "result_0.txt", MLPERF + steps, **given)
    assert (row["gbs"], row["seq"], row["step_seconds"], row["steps_measured"]) == ("256", "2048", "3.1", "3")


def test_mlperf_throughput_is_in_samples(tmp_path):
    rates = "".join(mllog("tracked_stats", {"throughput": rate}, step=1) for rate in (64.0, 64.0))
    assert step(tmp_path, "result_0.txt", MLPERF + rates, gbs=None)["step_seconds"] == "4"  # 256/64


@pytest.mark.parametrize("nested", [True, False], ids=["trainer_state", "all_results"])
def test_the_trainer_writes_the_mean_of_all_its_steps(tmp_path, nested):
    end = {"train_runtime": 500.0, "train_samples_per_second": 51.2, "train_steps_per_second": 0.4}
    history = [{"loss": 2.0, "step": 10}, end | {"step": 200}]
    state = {"global_step": 200, "log_history": history} if nested else end
    row = step(tmp_path, "trainer_state.json", json.dumps(state), gbs=None)
    assert (row["gbs"], row["step_seconds"]) == ("128", "2.5")
    assert "the mean of the whole training" in row["notes"]


def test_a_training_that_did_not_end_has_no_time(tmp_path):
    with pytest.raises(tc.InputError, match="train_steps_per_second: missing; the Trainer writes it"):
        step(
            tmp_path, "trainer_state.json", '{"global_step": 10, "log_history": [{"loss": 2.0, "step": 10}]}'
        )


TIMING = "train_step_timing in s"
PANEL = f'"Step","fast - {TIMING}","fast - {TIMING}__MIN","slow - {TIMING}"\n'


def test_a_panel_of_weights_and_biases_has_a_column_a_run(tmp_path):
    text = PANEL + '"1","2.5","2.5","4"\n"2","2.6","2.6","4.1"\n"3","2.7","2.7",""\n'
    with pytest.raises(tc.InputError, match=r"step times of 2 runs .* give id= with the name of one"):
        step(tmp_path, "wandb.csv", text)
    assert step(tmp_path, "wandb.csv", text, id="fast")["step_seconds"] == "2.6"
    assert step(tmp_path, "wandb.csv", text, id="slow")["step_seconds"] == "4.05"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("history.csv", ",_step,_timestamp,loss\n0,10,1000.0,2\n1,20,1025.0,2\n2,30,1050.0,2\n"),
        ("history.csv", "step,step_time_ms\n10,2500\n20,2500\n"),
        ("loss.csv", "Wall time,Step,Value\n1000.0,10,2.0\n1025.0,20,1.9\n1050.0,30,1.8\n"),
        ("iteration-time.csv", "Wall time,Step,Value\n1000.0,10,2.5\n1300.0,20,2.5\n"),
        ("loss.json", "[[1700000000.0, 10, 2.0], [1700000025.0, 20, 1.9], [1700000050.0, 30, 1.8]]"),
    ],
    ids=["clock", "milliseconds", "wall-time", "value", "tensorboard-json"],
)
def test_exports_hold_step_times_or_a_clock(tmp_path, name, text):
    assert step(tmp_path, name, text)["step_seconds"] == "2.5"


def test_event_files_are_to_be_exported(tmp_path):
    with pytest.raises(tc.InputError, match="TensorBoard's own; export the step time"):
        step(tmp_path, "events.out.tfevents.17", "brain.Event:2")


def test_what_a_series_lacks_is_listed(tmp_path):
    with pytest.raises(tc.InputError) as error:
        read(written(tmp_path, "wandb.csv", "Step,step_time\n1,2.5\n"))
    assert {problem.split(":")[0] for problem in error.value.problems} >= {"layers", "gpus", "tp", "gbs"}


# Printed by transformers 5.23.0 for an exported folder, shortened; figures rounded.
PRINTED = """run: {"model": "config.json", "seq": 64, "gpus": 2, "precision": "bf16", "tp": 1, "pp": 1, "mbs": 2, "gbs": 8, "zero": 0, "recompute": "none", "flash_attention": "True"}
{'loss': '6.25', 'grad_norm': '1.1', 'learning_rate': '4e-05', 'epoch': '0.33'}
{'loss': '6.24', 'grad_norm': '1.1', 'learning_rate': '3e-05', 'step_time': '0.04', 'epoch': '0.67'}
{'loss': '6.23', 'grad_norm': '1.1', 'learning_rate': '2e-05', 'step_time': '0.06', 'epoch': '1'}
{'train_runtime': '0.5', 'train_samples_per_second': '48', 'train_steps_per_second': '6', 'epoch': '1'}
"""  # noqa: E501
TINY = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 352, "vocab_size": 512,
    "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def test_the_log_of_an_exported_folder_needs_nothing_given(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    measured = read_measured("examples/measured_cpu/machine.yaml", logs=[written(tmp_path, "a.log", PRINTED)])
    (run,) = measured.runs
    assert (run.model.layers, run.model.seq, run.model.norm, run.plan.dp, run.plan.mbs, run.gbs) == (
        2, 64, "rmsnorm", 2, 2, 8,
    )  # fmt: skip
    assert run.stack == "huggingface-eager"
    assert run.step_seconds == 0.06  # of the two, one is warm-up


def test_what_is_given_goes_before_what_the_log_states(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    row = read(written(tmp_path, "a.log", PRINTED), gpu="h100-sxm-80", precision="fp32", warm_up=0).rows[0]
    assert (row["precision"], row["seq"], row["step_seconds"]) == ("fp32", "64", "0.05")


def test_printed_lines_without_step_times_give_the_mean_of_the_training(tmp_path):
    text = PRINTED.partition("\n")[2].replace("'step_time'", "'other'")
    assert step(tmp_path, "a.log", text)["step_seconds"] == f"{1 / 6:.9g}"


def test_a_run_line_that_is_damaged_states_nothing(tmp_path):
    text = PRINTED.replace('"flash_attention": "True"}', '"flash_attention": "True"')
    with pytest.raises(tc.InputError, match="layers: the log does not say"):
        read(written(tmp_path, "a.log", text), gpu="h100-sxm-80")


def test_a_model_file_named_like_another_kind_of_model_is_read_as_it_is(tmp_path):
    """Words of the path say nothing: neither LoRA nor a vision transformer is trained."""
    folder = tmp_path / "vit-lora"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))
    measured = read_measured("examples/measured_cpu/machine.yaml", logs=[written(folder, "a.log", PRINTED)])
    assert measured.runs[0].model.adapters is None
