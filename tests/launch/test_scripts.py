"""Bash scripts as people write them: functions, arrays with keys, calculations; and all questions at once."""

import re
import textwrap

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.reader import read
from traincast.launch.settings.given import Given

SIZES = (
    "--hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
    " --micro-batch-size 1 --bf16 --vocab-size 32000"
)
RUN = f"torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py {SIZES}"


def script(tmp_path, text):
    path = tmp_path / "run.sh"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def facts_of(tmp_path, text, variables=None):
    return read(script(tmp_path, text), READERS, given=Given(variables or {})).facts


SCRIPTS = {  # what bash 5.2 passes to the program, by hand
    "a function with parameters": (
        f"""\
        train() {{
          local tp=$1
          local pp=${{2:-1}}
          {RUN} --num-layers 32 --tensor-model-parallel-size $tp --pipeline-model-parallel-size $pp
        }}
        train 4 2 | tee log
        """,
        {"tp": 4, "pp": 2, "layers": 32},
    ),
    "a function that passes its words on": (
        f"""\
        function launch {{
          local layers=$1
          shift
          {RUN} --num-layers $layers "$@"
        }}
        launch 40 --tensor-model-parallel-size 8
        """,
        {"tp": 8, "layers": 40},
    ),
    "a function that nothing calls here": (
        f"""\
        train()
        {{
          {RUN} --num-layers 32 --tensor-model-parallel-size 2
        }}
        """,
        {"tp": 2, "layers": 32},
    ),
    "an array with keys": (
        f"""\
        declare -A LAYERS=( ["7b"]=32 [13b]=40 )
        LAYERS[70b]=80
        SIZE=70b
        {RUN} --num-layers ${{LAYERS[$SIZE]}} --tensor-model-parallel-size ${{#LAYERS[@]}}
        """,
        {"tp": 3, "layers": 80},
    ),
    "a variable that another one names": (
        f"""\
        LAYERS_7B=32
        NAME=LAYERS_7B
        {RUN} --num-layers ${{!NAME}}
        """,
        {"layers": 32},
    ),
    "commands that calculate": (
        f"""\
        NODES=4
        GPUS=`expr $NODES \\* 8`
        TP=$(echo "$GPUS / 8" | bc)
        DP=$(python3 -c "print(int($GPUS // ($TP * 2)))")
        {RUN} --num-layers 32 --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 \\
            --global-batch-size $((DP * 16))
        """,
        {"tp": 4, "gbs": 64},
    ),
    "nodes that Slurm names": (
        f"""\
        #!/bin/bash
        #SBATCH --nodes=4
        NODES=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l)
        {RUN} --num-layers 32 --global-batch-size $((NODES * 8))
        """,
        {"gbs": 32},
    ),
    "words of here-documents": (
        f"""\
        MODEL=$(cat <<EOT
        --num-layers 32 {SIZES}
        EOT
        )
        read -r -d '' PLAN <<'EOF'
          --tensor-model-parallel-size 4
          --global-batch-size 64
        EOF
        torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py $MODEL $PLAN "${{@}}"
        """,
        {"layers": 32, "tp": 4, "gbs": 64, "vocab": 32000},
    ),
    "functions that main calls with what the script is given": (
        f"""\
        degrees() {{ TP=${{1:-2}}; }}
        main() {{
          degrees "$@"
          {RUN} --num-layers 32 --tensor-model-parallel-size $TP
        }}
        main "$@"
        """,
        {"tp": 2, "layers": 32},
    ),
    "processes of MPI": (
        f"mpirun -np 64 -x PATH python pretrain_gpt.py {SIZES} --num-layers 32\n",
        {"gpus": 64},
    ),
    "tasks of Slurm": (
        f"srun --ntasks=128 python pretrain_gpt.py {SIZES} --num-layers 32\n",
        {"gpus": 128},
    ),
    "words of a here-string and an array that is not set": (
        f"""\
        DEGREES="2,4,1"
        IFS=, read -r TP PP CP <<< "$DEGREES"
        {RUN} --num-layers 32 --tensor-model-parallel-size $TP ${{FURTHER[@]}} \\
            --pipeline-model-parallel-size $PP
        """,
        {"tp": 2, "pp": 4},
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_read_as_bash_runs_it(tmp_path, name):
    text, expected = SCRIPTS[name]
    facts = facts_of(tmp_path, text)
    assert {fact: facts[fact] for fact in expected} == expected


def test_a_file_of_the_repository_is_sourced_from_above(tmp_path):
    """The script stands in a folder of the repository, whose root it is started in."""
    (tmp_path / "scripts/runs").mkdir(parents=True)
    (tmp_path / "scripts/env.sh").write_text("LAYERS=48\n", encoding="utf-8")
    path = tmp_path / "scripts/runs/run.sh"
    path.write_text(f"source scripts/env.sh\n{RUN} --num-layers $LAYERS\n", encoding="utf-8")
    assert read(path, READERS).facts["layers"] == 48


@pytest.mark.parametrize(
    "start",
    [
        "srun bash inner.sh 40 2",
        "./inner.sh 40 2 2>&1 | tee log",
        "LAYERS=40 srun --nodes 4 bash inner.sh 48 2",
    ],
)
def test_a_script_that_another_one_starts_is_read_with_its_parameters(tmp_path, start):
    inner = f"LAYERS=${{LAYERS:-$1}}\nPP=$2\n{RUN} --num-layers $LAYERS --pipeline-model-parallel-size $PP"
    (tmp_path / "inner.sh").write_text(f"{inner} --tensor-model-parallel-size $TP\n", encoding="utf-8")
    facts = facts_of(tmp_path, f"export TP=4\n{start}\n")
    assert (facts["layers"], facts["pp"], facts["tp"]) == (40, 2, 4)


@pytest.mark.parametrize(
    ("files", "size"),
    [  # megatron/training/tokenizer: GPT2BPETokenizer is the one with a merge file
        ("--vocab-file $BPE/vocab.json --merge-file $BPE/merges.txt", 50257),
        ("--tokenizer-type PretrainedFromHF --tokenizer-name-or-path t5-small", 32100),
        ("--vocab-file $BPE/vocab.json", None),
    ],
)
def test_a_vocabulary_with_merges_is_that_of_gpt_2(tmp_path, files, size):
    text = f"BPE=/data/bpe\n{RUN.replace('--vocab-size 32000', files)} --num-layers 31\n"
    path = script(tmp_path, text)
    if size is None:
        with pytest.raises(tc.InputError, match="does not give the vocabulary size"):
            tc.check(path, "dgx-h100")
        return
    assert tc.check(path, "dgx-h100").est.model.vocab == size


def problems(path, **given):
    with pytest.raises(tc.InputError) as caught:
        tc.check(path, "dgx-h100", **given)
    return caught.value.problems


def test_all_questions_are_asked_at_once_and_one_answer_settles_them(tmp_path):
    size = "--hidden-size 4096 --num-attention-heads 32 --max-position-embeddings 4096"
    path = script(
        tmp_path,
        f"""\
        torchrun --nproc_per_node $GPUS pretrain_gpt.py {size} --num-layers 32 --bf16 --micro-batch-size 1 \\
            --tensor-model-parallel-size $TP --global-batch-size $(( NODES * ACC )) --no-such-layer-flag 3
        """,
    )
    asked = problems(path)
    for wanted in (
        "--tensor-model-parallel-size = '$TP': .*--set TP=…",
        "--global-batch-size is computed from NODES and ACC, .*--set NODES=… --set ACC=…",
        "--nproc-per-node = '$GPUS': .*--set GPUS=…",
        "does not give the sequence length",
        "does not give the vocabulary size",
        "--no-such-layer-flag = 3: not read",
    ):
        assert any(re.match(wanted.replace("$", r"\$"), line) for line in asked), wanted
    checked = tc.check(
        path,
        "dgx-h100",
        variables={"TP": "2", "NODES": "1", "ACC": "16", "GPUS": "8"},
        seq=4096,
        vocab=32000,
        accept_unread=True,
    )
    assert (checked.est.plan.tp, checked.est.gbs, checked.est.plan.gpus) == (2, 16, 8)


@pytest.mark.parametrize("value", ["{{layers}}", "<LAYERS>", "[LAYERS]", "???", "__LAYERS__", "YOUR_LAYERS"])
def test_a_template_is_named_as_such(tmp_path, value):
    path = script(tmp_path, f"{RUN} --num-layers '{value}'\n")
    assert f"--num-layers = {value}: a placeholder, as this is a template; fill it in" in problems(path)


def test_a_template_that_is_no_yaml_is_named_as_such(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("distributed_type: FSDP\nnum_processes: {{gpus}}\n", encoding="utf-8")
    with pytest.raises(tc.InputError, match="a template; fill it in"):
        read(path, READERS, "accelerate")
