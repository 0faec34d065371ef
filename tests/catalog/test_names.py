"""Names that people say for machines, GPUs, instances of clouds and models."""

import re
from collections.abc import Callable
from itertools import chain

import pytest

import traincast as tc
from traincast.catalog.documents import catalogue, values_of_key
from traincast.catalog.load import (
    accelerator_names,
    figures,
    known_name,
    load_accelerator,
    load_model,
    load_system,
)
from traincast.catalog.names import model_called, names_of_accelerator, system_called
from traincast.core.errors import InputError
from traincast.ui.explorer.question import State, check_state

GPUS = {  # as they are said, and by nvidia-smi or a cloud; the node that its maker sells, or the usual one
    "dgx-h100": "h100 H100 H100-SXM h100-sxm5 h100-80gb h100_80gb hgx-h100 NVIDIA-H100-80GB-HBM3 h100-sxm-80",
    "h100-pcie-node": "H100-PCIe h100-pcie-80gb",
    "grand-teton-h100-96": "h100-96gb",
    "dgx-h200": "h200 H200 H200-SXM h200-141gb hgx-h200",
    "h200-nvl-node": "h200-nvl",
    "hgx-h800": "h800 H800-SXM h800-80gb",
    "dgx-a100": "a100 a100-80gb a100-80g A100-80 A100-SXM a100-sxm4-80gb NVIDIA-A100-SXM4-80GB dgx-a100-80gb",
    "dgx-a100-40": "a100-40gb A100-40 a100-sxm4-40gb NVIDIA-A100-SXM4-40GB dgx-a100-40gb",
    "a100-pcie-80-node": "a100-pcie-80gb NVIDIA-A100-80GB-PCIe",
    "a100-pcie-40-node": "a100-pcie-40gb NVIDIA-A100-PCIE-40GB",
    "dgx-b200": "b200 B200 B200-SXM b200-192gb b200-180gb hgx-b200",
    "dgx-b300": "b300 B300 hgx-b300",
    "gb200-nvl72": "gb200 GB200 nvl72 GB200_NVL72",
    "gb300-nvl72": "gb300 GB300",
    "gh200-node4": "gh200 GH200-96GB NVIDIA-GH200-480GB",
    "gh200-144-node4": "gh200-144gb",
    "mi300x-node": "mi300x MI300X mi300x-192gb AMD-Instinct-MI300X",
    "mi325x-node": "mi325x mi325x-256gb",
    "mi350x-node": "mi350x",
    "mi355x-node": "mi355x",
    "mi250-node": "mi250",
    "frontier": "mi250x mi250x-gcd",
    "rtx-4090": "4090 rtx4090 rtx-4090 RTX_4090 NVIDIA-GeForce-RTX-4090",
    "rtx-3090": "3090 rtx3090 rtx-3090 NVIDIA-GeForce-RTX-3090",
    "rtx-5090": "5090 rtx5090 rtx-5090 NVIDIA-GeForce-RTX-5090",
    "l4": "l4 NVIDIA-L4 l4-24gb",
    "t4": "t4 Tesla-T4",
    "a10": "a10 NVIDIA-A10",
    "a40": "a40 NVIDIA-A40",
    "l40": "l40 NVIDIA-L40 l40-48gb",
    "h100-nvl-node": "h100-nvl NVIDIA-H100-NVL",
    "rtx-a6000": "a6000 A6000 rtx-a6000",
    "rtx-6000-ada": "6000-ada rtx6000ada",
    "rtx-pro-6000": "rtx-pro-6000 pro-6000",
    "l40s": "l40s L40S NVIDIA-L40S l40s-48gb",
    "a10g": "a10g A10G a10g-24gb",
    "dgx-v100": "v100 V100-32GB Tesla-V100-SXM2-32GB",
    "dgx-v100-16": "v100-16gb Tesla-V100-SXM2-16GB",
    "tpu-v4-pod": "tpu-v4 tpuv4",
    "tpu-v5e-pod": "tpu-v5e v5e tpu_v5e v5litepod",
    "tpu-v5p-pod": "tpu-v5p v5p",
    "tpu-v6e-pod": "tpu-v6e v6e trillium",
    "tpu-v7x-pod": "tpu-v7x v7x ironwood tpu7x",
    "aws-trn2": "trn2 trainium2",
    "gaudi2-node": "gaudi2 gaudi-2",
    "dgx-spark": "spark gb10 dgx-spark",
    "dgx-station": "gb300-desktop",
}
CLOUDS = {  # instances by the names of their clouds
    "aws-p5": "p5 p5.48xlarge aws-p5",
    "aws-p5en": "p5en p5en.48xlarge",
    "aws-p5e": "p5e p5e.48xlarge",
    "aws-p4d": "p4d p4d.24xlarge",
    "aws-p4de": "p4de p4de.24xlarge",
    "aws-p6-b200": "p6-b200 p6-b200.48xlarge",
    "aws-p6-b300": "p6-b300.48xlarge",
    "aws-p6e-gb200": "p6e-gb200 u-p6e-gb200x72",
    "aws-p3": "p3.16xlarge",
    "aws-p3dn": "p3dn.24xlarge",
    "aws-g5": "g5.48xlarge",
    "a10g": "g5.12xlarge",
    "aws-g6e": "g6e.48xlarge",
    "aws-trn2": "trn2.48xlarge",
    "l4": "g6 g6.48xlarge g2-standard-96",
    "t4": "g4dn g4dn.metal",
    "azure-nd-a100-v4": "ND-A100-v4 ND96asr_v4 Standard_ND96asr_v4",
    "azure-ndm-a100-v4": "NDm-A100-v4 ND96amsr_A100_v4",
    "azure-nd-h100-v5": "ND-H100-v5 ND96isr_H100_v5 Standard_ND96isr_H100_v5",
    "azure-nd-h200-v5": "ND-H200-v5 Standard_ND96isr_H200_v5",
    "azure-ndv2": "Standard_ND40rs_v2",
    "mi300x-node": "ND-MI300X-v5 Standard_ND96isr_MI300X_v5 BM.GPU.MI300X.8",
    "gb200-nvl72": "ND-GB200-v6",
    "gcp-a2-highgpu": "a2-highgpu-8g a2-highgpu",
    "gcp-a2-ultragpu": "a2-ultragpu-8g a2-ultragpu",
    "gcp-a3-high": "a3-highgpu-8g a3-highgpu",
    "gcp-a3-mega": "a3-megagpu-8g a3-megagpu",
    "gcp-a3-ultra": "a3-ultragpu-8g a3-ultragpu",
    "gcp-a4": "a4-highgpu-8g a4-highgpu",
    "gcp-a4x": "a4x-highgpu-4g a4x-highgpu",
    "oci-h100": "BM.GPU.H100.8",
    "oci-h200": "BM.GPU.H200.8",
    "oci-b200": "BM.GPU.B200.8",
    "hgx-a100-40-roce-8x200": "BM.GPU4.8",
    "hgx-a100-roce-8x200": "BM.GPU.A100-v2.8",
}
NVL72 = "gb200-nvl72"
MODELS = {
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B Qwen3-30B-A3B qwen3_30b_a3b Qwen/Qwen3-30B-A3B-Instruct-2507",
    "llama-3-8b": "meta-llama/Llama-3.1-8B Llama-3.1-8B-Instruct llama3.1_8b Meta-Llama-3-8B",
    "llama-3-70b": "Meta-Llama-3-70B llama3-70b meta-llama/Llama-3.3-70B-Instruct",
    "mistral-7b": "mistralai/Mistral-7B-v0.1",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-V3-0324",
    "gpt-oss-20b": "openai/gpt-oss-20b gpt_oss_20b",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct https://huggingface.co/Qwen/Qwen2.5-7B",
    "llama-2-7b": "llama-7b lmsys/vicuna-7b-v1.5",
    "llama-3.1-405b": "llama-405b meta-llama/Llama-3.1-405B-Instruct",
    "mistral-small-24b": "mistralai/Magistral-Small-2506 mistralai/Devstral-Small-2505",
    "gpt2-xl": "openai-community/gpt2-xl gpt2_xl",
    "bloom-176b": "bloom bigscience/bloom BLOOM-176B",
    "falcon-40b": "tiiuae/falcon-40b-instruct",
    "opt-66b": "facebook/opt-66b",
    "yi-34b": "01-ai/Yi-34B-Chat",
    "phi-4-mini": "microsoft/Phi-4-mini-instruct",
    "gpt-j-6b": "EleutherAI/gpt-j-6b GPT-J-6B gptj",
    "pythia-12b": "EleutherAI/pythia-12b-deduped",
    "moonlight-16b-a3b": "moonshotai/Moonlight-16B-A3B-Instruct",
}


def said(table: dict[str, str]) -> list[tuple[str, str]]:
    """Return each alias of a table with the entry that it means."""
    return [(alias, entry) for entry, aliases in table.items() for alias in aliases.split()]


@pytest.mark.parametrize(("alias", "system"), [*said(GPUS), *said(CLOUDS)])
def test_alias_of_a_system(alias: str, system: str) -> None:
    """Blanks, hyphens and underscores are one, and case does not count."""
    for spelled in (alias, alias.upper(), alias.replace("-", " "), alias.replace("-", "_")):
        named = system_called(spelled)
        assert named is not None
        assert named.name == system
        plain = re.sub(r"[^a-z0-9]|(?<=\d)gb", "", spelled.lower())  # only spelled differently
        assert plain.endswith(re.sub("-", "", system)) or named.taken.startswith(
            f"{spelled}: taken as {system}"
        )


@pytest.mark.parametrize(("alias", "model"), said(MODELS))
def test_alias_of_a_model(alias: str, model: str) -> None:
    assert load_model(alias) == load_model(model)
    assert load_model(alias.upper()).name == model


@pytest.mark.parametrize("accelerator", accelerator_names())
def test_every_accelerator_has_a_usual_node_and_all_its_names_are_aliases_of_one(accelerator: str) -> None:
    listed = [
        system for system, names in values_of_key("systems", "usual_for").items() if accelerator in names
    ]
    assert len(listed) == 1
    has = values_of_key("systems", "accelerator")[listed[0]]
    assert has == (accelerator,) or (accelerator, has) == ("mi250x-128", ("mi250x-gcd",))  # both of its GCDs
    assert load_system(accelerator).name == listed[0]
    for name in names_of_accelerator(accelerator):
        assert system_called(name) is not None
        assert load_accelerator(name).name in {load_accelerator(other).name for other in accelerator_names()}


def test_an_alias_means_one_entry() -> None:
    """Neither two systems nor a system and a model have a name in common."""
    names = [
        (name.lower(), system)
        for key in ("also_called", "usual_for")
        for system, of_system in values_of_key("systems", key).items()
        for name in of_system
    ]
    both = {name for name, system in names for other, its in names if name == other and system != its}
    assert both == set()
    spoken = chain.from_iterable(of_model for of_model in values_of_key("models", "aliases").values())
    assert not [name for name in (*catalogue("models"), *spoken) if system_called(name)]
    assert not [name for name, _ in names if model_called(name)]


@pytest.mark.parametrize(
    ("alias", "system"),
    [
        ("8xH100", "dgx-h100"),
        ("H100x8", "dgx-h100"),
        ("8x A100-80GB", "dgx-a100"),
        ("H100:8", "dgx-h100"),
        ("72xGB200", "gb200-nvl72"),
    ],
)
def test_an_alias_with_the_number_of_a_node(alias: str, system: str) -> None:
    """As rented machines are listed; another number than that of the node is another machine."""
    named = system_called(alias)
    assert named is not None
    assert named.name == system
    assert named.taken.startswith(f"{alias}: taken as {system}: ")
    with pytest.raises(InputError, match="give h100, and 4 as the number of GPUs"):
        load_system("4xH100")


def test_machines_of_the_paper_keep_their_names() -> None:
    assert [load_system(name).name for name in ("a100-nvs8", "H200-nvs4")] == ["a100-nvs8", "h200-nvs4"]
    assert load_system("a100").name == "dgx-a100"


def test_what_an_alias_was_taken_for_is_said() -> None:
    est = tc.estimate("meta-llama/Llama-3.1-8B", "h100", tc.Plan(dp=8, tp=1), gbs=8)
    model, system = est.job.to_dict()["taken"]
    assert model.startswith("meta-llama/Llama-3.1-8B: taken as llama-3-8b")
    assert "8,192 tokens" in model
    assert system.startswith("h100: taken as dgx-h100, its usual node: NVIDIA DGX H100")
    assert "tokens" not in load_model("Llama-3.1-8B", seq=4096).taken
    assert load_system("DGX H100").taken == load_model("Qwen/Qwen3-8B").taken == ""


def test_the_explorer_keeps_the_catalogues_names_for_an_alias() -> None:
    case = check_state(State(model="Qwen/Qwen3-8B", system="h100"))
    assert (case.normal["model"], case.normal["system"]) == ("qwen3-8b", "dgx-h100")
    assert known_name("system", "p5.48xlarge") == "aws-p5"


def test_a_study_and_a_design_take_an_alias() -> None:
    table = tc.study(models=["Qwen/Qwen3-8B"], systems=["h100"], gpus=[8], gbs=64).frame
    assert set(table["system"]) == {"dgx-h100"}
    assert set(table["model"]) == {"qwen3-8b"}


@pytest.mark.parametrize(
    ("load", "name", "first", "never"),
    [
        (load_system, "dgx-a100-160gb", "dgx-a100", "h100|b200|a10g"),
        (load_system, "A100-foo", "dgx-a100", "a10g|h100"),
        (load_system, "gb200-nvl36", "gb200-nvl72", "dgx-b200|gb300"),
        (load_system, "gb300-nvl36", "gb300-nvl72", "gb200|b300$"),
        (load_system, "h100-board", "(dgx-h100|h100-pcie-node)", "h200"),
        (load_system, "mi300x-platform", "mi300x-node", "mi325x|mi355x"),
        (load_system, "dgx-h10", "dgx-h100", "b200"),
        (figures, "h100-foo", "dgx-h100", "a100|h200"),
        (load_model, "nemotron-h-99b", "nemotron-h-(8|56)b", "llama"),
        (load_model, "Qwen/Qwen3-9B", r"qwen3(\.5-9|-[48])b", "llama"),
        (load_model, "llama-72b", "llama-[23]-70b|llama-70b", "qwen"),
        (load_model, "llama3", "llama-3-8b", "llama-[12]|llama-33b"),
        (load_model, "gemma-3", "gemma-3-[14]b", "gemma-2"),
        (load_model, "mixtral-8x8b", "mixtral-8x7b", "mistral"),
    ],
)
def test_suggestions_are_of_the_same_gpu_or_family_on_one_line(
    load: Callable[[str], object], name: str, first: str, never: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(name)
    text = str(caught.value)
    assert re.search(f"did you mean {first}( or |\\?)", text)
    assert not re.search(never, text.partition("did you mean")[2])
    assert len(f"traincast: {text}") <= 80
    assert "\n" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("4xH100", "unknown system '4xH100': give h100, and 4 as the number of GPUs"),
        ("a100:2", "unknown system 'a100:2': give a100, and 2 as the number of GPUs"),
        ("h100,dgx-b200", "system 'h100,dgx-b200': must be one system; `traincast compare` takes several"),
    ],
)
def test_a_part_of_a_node_or_two_systems_are_answered_with_what_to_give(name: str, words: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(words)}$"):
        load_system(name)


@pytest.mark.parametrize("name", ["h20", "b100", "mi300a", "a800", "NVIDIA H20"])
def test_a_gpu_that_the_catalogue_lacks_is_not_answered_with_another(name: str) -> None:
    """The nearest names are called that, not what was meant."""
    with pytest.raises(
        InputError, match=f"unknown system '{name}': none is close; nearest in letters: "
    ) as error:
        load_system(name)
    assert "did you mean" not in str(error.value)
    assert str(error.value).endswith("; `traincast catalog` lists the systems")


@pytest.mark.parametrize(
    ("load", "name", "nearest"),
    [(load_system, "h1000", "h100"), (load_system, "mi400", "mi300x"), (load_model, "blom", "bloom")],
)
def test_an_unknown_name_always_names_the_nearest(
    load: Callable[[str], object], name: str, nearest: str
) -> None:
    with pytest.raises(InputError, match=f"(nearest in letters: |did you mean ){nearest}"):
        load(name)
