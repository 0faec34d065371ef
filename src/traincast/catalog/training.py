"""What of a model is trained, and on what: adapters, a reference model, documents and images."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from traincast.catalog.huggingface.adapters import load_training
from traincast.core import ErrorCollector, InputError, parse_quantity
from traincast.model import (
    FINE_TUNING_BATCH,
    FINE_TUNING_LENGTH,
    FINE_TUNING_OBJECTIVES,
    Adapters,
    Documents,
    Model,
    parse_lengths,
    parse_training,
    split_objective,
)

SMALL_VOCABULARY: Final = 65_500  # Megatron-LM stores token ids below it in 2 bytes, others in 4 (DType)


@dataclass(frozen=True)
class Training:
    """What of a model is trained, on what."""

    objective: str = "sft"  # one of `FINE_TUNING_OBJECTIVES`
    supervised: bool = False  # whether the objective is stated, so that all weights are fine-tuned
    adapters: Adapters | None = None  # what is trained; the whole model if None
    documents: Documents | None = None  # lengths of the documents; each sequence is one if None
    images: int | None = None  # images of a sequence; the model's own if None
    image_size: int | None = None  # their side [pixel]; the model's own if None
    frozen_tower: bool = False  # whether the vision tower is not trained

    @classmethod
    def read(
        cls,
        train: str | None = None,
        lengths: str | None = None,
        images: int | None = None,
        image_size: int | None = None,
        frozen_tower: bool = False,
        files: bool = True,
    ) -> "Training":
        """Return what texts such as ``"dpo+lora:r=16"`` and ``"padded:512"`` say, and what images say.

        Raises `InputError` if a text is wrong, or `files` is false and it names one; all mistakes at once.
        """
        errors = ErrorCollector("training")
        objective, trained = split_objective(train or "full")
        stated = (train or "").strip().partition("+")[0] in FINE_TUNING_OBJECTIVES
        adapters = errors.catch(load_training if files else parse_training, trained)
        documents = None if lengths is None else errors.catch(parse_lengths, lengths, files)
        errors.raise_any()
        supervised = stated and objective == "sft" and adapters is None
        return cls(objective, supervised, adapters, documents, images, image_size, frozen_tower)

    def apply_to(self, model: Model) -> Model:
        """Return a model as it is trained; raise an `InputError` with all that it lacks."""
        errors = ErrorCollector("training")
        seen: Model | None = model
        if self.frozen_tower or (self.images, self.image_size) != (None, None):
            seen = errors.catch(model.with_images, self.images, self.image_size, self.frozen_tower)
        tuning = self.objective, self.adapters, self.documents, self.supervised
        trained = errors.catch((seen or model).fine_tuned, *tuning)
        return errors.require(trained)

    @property
    def fine_tunes(self) -> bool:
        """Whether a trained model is fine-tuned: by adapters, on answers or on pairs of them."""
        return self.adapters is not None or self.supervised or self.objective == "dpo"

    def load(self, load: Callable[..., Model], length: int | None) -> Model:
        """Return a model with sequences of a length [tokens], or of that usual in fine-tuning for None.

        Documents, and sequences that are not text alone, keep the model's own length. `load` returns a model
        by the keyword `seq`.
        """
        model = load(seq=length)
        is_text = model.vocab is not None and model.encoder is None and model.tower is None
        is_usual = length is None and self.fine_tunes and is_text and self.documents is None
        return load(seq=FINE_TUNING_LENGTH) if is_usual and model.seq > FINE_TUNING_LENGTH else model

    def with_assumed(self, model: Model, *, has_length: bool, has_batch: bool, sharding: str = "") -> Model:
        """Return a model whose line on what is taken also says what fine-tuning assumes of a run, if it does.

        `model` is the model as trained; the others say whether a length and a batch are given, and the
        sharding of weights that is assumed, in words.
        """
        parts = []
        if model.is_fine_tuned and not has_batch and model.global_batch is None:
            parts.append(f"{FINE_TUNING_BATCH} sequences a step")
        if self.fine_tunes and not has_length and model.seq == FINE_TUNING_LENGTH:
            parts.append(f"{FINE_TUNING_LENGTH:,} tokens a sequence (max_length of TRL 1.16)")
        if sharding:
            parts.append(sharding)
        if not parts:
            return model
        assumed = f"assumed for fine-tuning: {', '.join(parts)}"
        return replace(model, taken="; ".join(filter(None, (model.taken, assumed))))


def read_input_rate(text: str, model: Model) -> float:
    """Return what an input pipeline delivers for an accelerator [sequence/s].

    The text is in sequences, tokens or bytes of token ids, such as ``"20 ktoken/s"`` or ``"50 MB/s"``. Raises
    `InputError` if it is none of these, or gives bytes of a model without tokens.
    """
    id_bytes = 0
    if model.vocab is not None:
        id_bytes = 2 if model.vocab < SMALL_VOCABULARY else 4
    sizes = {"sequence/s": 1, "token/s": model.seq, "byte/s": id_bytes * model.seq}
    for unit, size in sizes.items():
        try:
            value = parse_quantity(text, unit)
        except ValueError:
            continue
        if size:
            return value / size
        raise InputError(
            "input rate", [f"{text!r}: the model has no token ids; write for instance 3 sequence/s"]
        )
    raise InputError("input rate", [f"{text!r}: write for instance 3 sequence/s, 20 ktoken/s or 50 MB/s"])
