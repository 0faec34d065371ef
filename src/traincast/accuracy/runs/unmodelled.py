"""Training that is not modelled: adapters, models other than text decoders, reinforcement learning.

Patterns are searched in the free text of a table. ``model`` names a published model, so that "FLUX" or "T5" there states what was
trained; in notes the same word may be a folder or a tokenizer, and only phrases count.
"""

import re
from dataclasses import dataclass
from typing import Final

from traincast.accuracy.runs.row import WORDY_COLUMNS, Cells

PHRASE_COLUMNS: Final = ("model", "trained", *WORDY_COLUMNS)
CODE_COLUMNS: Final = (
    "id",
    "url",
    "system",
    "gpu",
    "interconnect",
)  # networks have adapters too, and paths may hold any word
TRAINS_ALL: Final = r"(?:all|full|every\w*|sft|pre-?train\w*)\b"  # in `trained`: nothing is frozen
SAYS_FULL: Final = r"full[- ](?:parameters?|weights?|sft|fine-?tun\w*)"  # in other columns: nothing is frozen
DENIAL_BEFORE: Final = (
    r"(?:\b(?:no|not|non|without|w/o|than|unlike|versus|vs|instead of|excluding)\b\W{1,2}(?:\w+ )?)$"
)
DENIAL_AFTER: Final = (
    r"[\w ]{0,8}?\s*(?:[=:]\s*|is |are )?(?:false|none|off|no|disabled|left out|excluded)\b|\w*\s*=\s*0\b"
)
NOT_A_HARDWARE_ADAPTER: Final = "".join(
    rf"(?<!{word} )"
    for word in (
        "network",
        "Ethernet",
        "InfiniBand",
        "IB",
        "host",
        "bus",
        "NIC",
        "Gb/s",
        "HCA",
        r"ConnectX-\d",
    )
)
MODEL_PARTS: Final = (
    r"(?:base|backbone|weights|parameters|layers|embeddings?|llm|(?:base |language )?model|encoder|tower)"
)
NOT_LATENT_RANKS: Final = r"(?<!\bq[ _-])(?<!\bkv[ _-])"  # q_lora and kv_lora are widths of latent attention


@dataclass(frozen=True)
class Unmodelled:
    """A kind of training that is not modelled, and the words that state it.

    Parameters
    ----------
    reason : str
        Why the row is skipped.
    phrases : str
        Pattern in `model`, `trained` and columns of free text.
    names : str
        Pattern in `model` alone.
    """

    reason: str
    phrases: str
    names: str = ""


FINE_TUNING: Final = (  # the first match counts, in any column of text
    Unmodelled(
        "trains LoRA adapters: fine-tuning is not modelled yet",
        rf"{NOT_LATENT_RANKS}(?:(?:q|rs|x|long|multi-?)?lora|dora)",
    ),
    Unmodelled(
        "trains adapters: fine-tuning is not modelled yet",
        rf"peft|{NOT_A_HARDWARE_ADAPTER}adapters?|(?:prefix|prompt|p)-? ?tuning|ia3",
    ),
    Unmodelled(
        "trains a part of the weights: fine-tuning is not modelled yet",
        rf"frozen {MODEL_PARTS}|{MODEL_PARTS} (?:is |are )?frozen|(?:freez(?:e|es|ing)) (?:the )?{MODEL_PARTS}|bitfit",
    ),
)
SUBJECTS: Final = (  # every match counts
    Unmodelled(
        "is an encoder-decoder: only decoders are modelled",
        r"encoder[- ]decoder|seq2seq",
        r"(?:m|by|u|flan)?-?t5|m?bart|whisper",
    ),
    Unmodelled(
        "is an encoder: a table's rows are read as decoders",
        r"masked language model\w*|encoder-only",
        r"\w*bert",
    ),
    Unmodelled(
        "is a diffusion model: only decoders of text are modelled",
        r"(?:latent |stable |video |image )?diffusion|text-to-(?:image|video|speech|audio)",
        r"(?:mm)?dit|flux\w*|sdxl|u-?net",
    ),
    Unmodelled(
        "is multimodal: its vision or audio tower is not modelled",
        r"multi-?modal|vision(?:[- ]language| tower| encoder)|vlm|image tokens|audio (?:tower|encoder)",
        r"vl|vision|vit|llava\w*|internvl\w*|omni",
    ),
    Unmodelled(
        "has state-space or linear-attention layers: they are not modelled",
        r"mamba\w*|state[- ]space|rwkv\w*|linear[- ]attention|gated delta\w*|gdn|deltanet|retnet|hyena",
        r"nemotron[-_ ]?h|jamba|zamba\w*|falcon-h\w*|qwen3-next|kimi-linear|granite-4\w*-h",
    ),
    Unmodelled(
        "is reinforcement learning or preference tuning: its steps generate or score as well",
        r"grpo|ppo|rlhf|rlvr|dpo|rl|dapo|reinforcement learning|reward model\w*",
    ),
)


def note_unmodelled(cells: Cells) -> None:
    """Note with the cells every reason why the training of a row is not modelled."""
    trained = cells.text("trained")
    full = (
        re.match(TRAINS_ALL, trained, re.IGNORECASE)
        if trained
        else _says(cells, SAYS_FULL, PHRASE_COLUMNS) or _says(cells, "full", ("model",))
    )
    columns = (
        ("model", "trained")
        if full
        else tuple(name for name in cells.row if name and name not in CODE_COLUMNS)
    )
    reasons = [kind.reason for kind in FINE_TUNING if _says(cells, kind.phrases, columns)][:1]
    for kind in SUBJECTS:
        if _says(cells, kind.phrases, PHRASE_COLUMNS) or (
            kind.names and _says(cells, kind.names, ("model",))
        ):
            reasons.append(kind.reason)
    if trained and not full and not reasons:
        reasons.append(f"trained = {trained!r}: only training of all weights is modelled; write all")
    for reason in reasons:
        cells.problem(reason)


def _says(cells: Cells, pattern: str, names: tuple[str, ...]) -> bool:
    """Return whether a cell matches a pattern in whole words, without a denial next to it."""
    words = re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", re.IGNORECASE)
    for text in map(cells.text, names):
        for match in words.finditer(text):
            before, after = text[: match.start()], text[match.end() :]
            denied = re.search(DENIAL_BEFORE, before, re.IGNORECASE) or re.match(
                DENIAL_AFTER, after, re.IGNORECASE
            )
            if not denied:
                return True
    return False
