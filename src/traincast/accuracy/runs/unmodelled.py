"""What a row says it trains, or how, that is not modelled: adapters, models that are no decoder of text, reinforcement learning.

Words are looked for in what people write into a table. A name (``model``) is one of a published model, so that "FLUX" or "T5" there
says what was trained; in notes the same word may be a folder or a tokenizer, and only phrases count.
"""

import re
from dataclasses import dataclass
from typing import Final

from traincast.accuracy.runs.row import WORDY, Cells

WORDS: Final = ("model", "trained", *WORDY)
NOT_WORDS: Final = ("id", "url", "system", "gpu", "interconnect")  # of which networks have adapters, and paths any word
ALL: Final = r"(?:all|full|every\w*|sft|pre-?train\w*)\b"  # what `trained` says where nothing is frozen,
FULL: Final = r"full[- ](?:parameters?|weights?|sft|fine-?tun\w*)"  # and what else says so
DENIED: Final = r"(?:\b(?:no|not|non|without|w/o|than|unlike|versus|vs|instead of|excluding)\b\W{1,2}(?:\w+ )?)$"
OFF: Final = r"[\w ]{0,8}?\s*(?:[=:]\s*|is |are )?(?:false|none|off|no|disabled|left out|excluded)\b|\w*\s*=\s*0\b"
HARDWARE: Final = "".join(
    rf"(?<!{one} )" for one in ("network", "Ethernet", "InfiniBand", "IB", "host", "bus", "NIC", "Gb/s", "HCA", r"ConnectX-\d")
)
PARTS: Final = r"(?:base|backbone|weights|parameters|layers|embeddings?|llm|(?:base |language )?model|encoder|tower)"
RANKS: Final = r"(?<!\bq[ _-])(?<!\bkv[ _-])"  # q_lora and kv_lora are widths of latent attention


@dataclass(frozen=True)
class Unmodelled:
    """Something that is not modelled, and the words that tell it.

    Parameters
    ----------
    reason : str
        Why the row is skipped.
    phrases : str
        Pattern of what says so in `model`, `trained` and where a row is wordy.
    names : str
        Pattern of what says so in `model` alone.
    """

    reason: str
    phrases: str
    names: str = ""


FINE_TUNING: Final = (  # the first that fits, in any column of words
    Unmodelled("trains LoRA adapters: fine-tuning is not modelled yet", rf"{RANKS}(?:(?:q|rs|x|long|multi-?)?lora|dora)"),
    Unmodelled("trains adapters: fine-tuning is not modelled yet", rf"peft|{HARDWARE}adapters?|(?:prefix|prompt|p)-? ?tuning|ia3"),
    Unmodelled(
        "trains a part of the weights: fine-tuning is not modelled yet",
        rf"frozen {PARTS}|{PARTS} (?:is |are )?frozen|(?:freez(?:e|es|ing)) (?:the )?{PARTS}|bitfit",
    ),
)
SUBJECTS: Final = (  # every one that fits
    Unmodelled(
        "is an encoder-decoder: only decoders are modelled", r"encoder[- ]decoder|seq2seq", r"(?:m|by|u|flan)?-?t5|m?bart|whisper"
    ),
    Unmodelled("is an encoder: a table's rows are read as decoders", r"masked language model\w*|encoder-only", r"\w*bert"),
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
    """Note with the cells every reason why what a row ran is not modelled."""
    trained = cells.text("trained")
    full = re.match(ALL, trained, re.IGNORECASE) if trained else _says(cells, FULL, WORDS) or _says(cells, "full", ("model",))
    wordy = ("model", "trained") if full else tuple(name for name in cells.row if name and name not in NOT_WORDS)
    reasons = [one.reason for one in FINE_TUNING if _says(cells, one.phrases, wordy)][:1]
    for one in SUBJECTS:
        if _says(cells, one.phrases, WORDS) or (one.names and _says(cells, one.names, ("model",))):
            reasons.append(one.reason)
    if trained and not full and not reasons:
        reasons.append(f"trained = {trained!r}: only training of all weights is modelled; write all")
    for reason in reasons:
        cells.problem(reason)


def _says(cells: Cells, pattern: str, names: tuple[str, ...]) -> bool:
    """Whether one of some cells says so in whole words, and does not say that it is not so."""
    words = re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", re.IGNORECASE)
    for text in map(cells.text, names):
        for found in words.finditer(text):
            before, after = text[: found.start()], text[found.end() :]
            denied = re.search(DENIED, before, re.IGNORECASE) or re.match(OFF, after, re.IGNORECASE)
            if not denied:
                return True
    return False
