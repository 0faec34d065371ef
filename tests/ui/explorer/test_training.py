"""What is trained and seen, in the explorer's questions and in study files, as on command lines."""

import json
from pathlib import Path

import pytest

import traincast as tc
from traincast.catalog.training import Training
from traincast.planner.studies.study_file import load_study
from traincast.ui.explorer.choices import model_info
from traincast.ui.explorer.question import check_state, model_of, normal_text, read_address, read_state
from traincast.ui.explorer.snippets import copy_texts

CONFIG = Path(__file__).parents[2] / "data" / "hf" / "gemma-3-27b.json"
GIVEN = {
    "train": "dpo+lora:r=8,targets=q+v",
    "lengths": "512:0.7,2048:0.3",
    "images": 2,
    "frozen_tower": True,
}


@pytest.fixture(scope="module")
def seeing():
    """A model with a vision tower, of which everything is asked."""
    return Training.read(**GIVEN).apply_to(tc.load_model(CONFIG, seq=4096))


def test_the_explorer_asks_what_command_lines_ask(seeing):
    """The model of a state is that of the options."""
    state = read_state({"model": json.loads(CONFIG.read_text(encoding="utf-8")), "seq": 4096, **GIVEN})
    model = model_of(state)
    assert (model.adapters, model.reference, model.documents) == (
        seeing.adapters,
        True,
        seeing.documents,
    )
    assert (model.tower.images, model.tower.frozen) == (2, True)


def test_the_address_holds_it(seeing):
    query = [("model", "llama-3-8b"), *((name, str(value).lower()) for name, value in GIVEN.items())]
    state, problems = read_address(query)
    assert problems == []
    assert (state.images, state.frozen_tower, state.train) == (2, True, GIVEN["train"])


def test_every_mistake_is_named():
    with pytest.raises(tc.InputError) as wrong:
        model_of(read_state({"images": "x", "frozen_tower": 3, "train": 7}))
    assert {problem.partition(" ")[0] for problem in wrong.value.problems} == {
        "images",
        "frozen_tower",
        "train",
    }
    with pytest.raises(tc.InputError, match="llama-3-8b has no vision tower"):
        model_of(read_state({"model": "llama-3-8b", "images": 2}))
    with pytest.raises(tc.InputError, match="loro"):
        model_of(read_state({"train": "loro"}))


def test_a_command_that_is_copied_has_it():
    case = check_state(read_state({"model": "llama-3-8b", "gpus": 8, "train": "lora", "lengths": "512,1024"}))
    for plan in (None, tc.Plan(dp=8)):
        command = copy_texts(case, plan)["cli"]
        assert "--train lora --lengths 512,1024" in command
        assert "frozen" not in command


def test_a_study_takes_it(tmp_path, seeing):
    """Documents and images of a study file are those of the options."""
    file = tmp_path / "study.json"
    keys = {
        "models": [str(CONFIG)],
        "systems": ["dgx-h100"],
        "gpus": [8],
        "strategies": ["1d"],
        "global_batch": 8,
        **GIVEN,
    }
    file.write_text(json.dumps(keys), encoding="utf-8")
    (model,) = load_study(file).models
    assert (model.adapters, model.reference, model.tower.images) == (seeing.adapters, True, 2)
    assert model.documents == seeing.documents
    file.write_text(json.dumps(keys | {"images": "many", "lengths": "x"}), encoding="utf-8")
    with pytest.raises(tc.InputError, match="images"):
        load_study(file)


def test_what_is_assumed_of_a_fine_tuning_is_known_after_caching():
    """The server fills in defaults, of which the answer says that they were assumed."""
    asked = read_state(
        json.loads(normal_text(json.dumps({"model": "llama-3-8b", "gpus": 8, "train": "dpo+lora"})))
    )
    info = model_info(model_of(asked))
    assert info["taken"].startswith("assumed for fine-tuning: 64 sequences a step, 1,024 tokens")
    assert info["has_pairs"]
    stated = read_state({"model": "llama-3-8b", "train": "lora", "global_batch": 32, "seq": 512})
    assert (model_info(model_of(stated))["taken"], model_info(model_of(stated))["has_pairs"]) == (None, False)


def test_the_page_asks_for_all_of_it():
    """Each has an input in the form, which `questions.js` reads by its name."""
    page = Path(tc.__file__).parent / "ui" / "explorer" / "static"
    form, script = ((page / name).read_text(encoding="utf-8") for name in ("index.html", "questions.js"))
    for name in (*GIVEN, "image_size"):
        assert f'id="{name}"' in form, name
        assert f'"{name}"' in script, name


def test_adapters_have_the_framework_batch_and_length_of_fine_tuning():
    """As `--train` of the command line has them: tests/ui/cli/test_fine_tuning_defaults.py."""
    case = check_state(read_state({"model": "llama-3-8b", "gpus": 8, "train": "dpo+lora"}))
    normal = {name: case.normal[name] for name in ("framework", "global_batch", "seq")}
    assert normal == {"framework": "huggingface", "global_batch": 64, "seq": 1024}
    assert "64 sequences a step" in case.model.taken
    given = {"model": "llama-3-8b", "gpus": 8, "train": "lora", "seq": 2048, "global_batch": 16}
    assert check_state(read_state(given)).model.taken == ""
