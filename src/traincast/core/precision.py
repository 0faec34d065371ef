"""Precision and optimizer recipes: bytes stored per parameter, and the precision of matrix products.

Bytes per parameter follow the usual account of mixed-precision training (arXiv 1710.03740, 1910.02054 section
3.1); the states of each optimizer follow its paper.
"""

from dataclasses import dataclass
from typing import Final, Literal

Rate = Literal["fp32", "16-bit", "fp8", "int8", "fp4"]  # which peak of the matrix unit a product runs at


@dataclass(frozen=True)
class Precision:
    """Precision recipe: sizes of weights, activations and operands, and the rate of products."""

    name: str
    rate: Rate  # of linear layers; attention and the output head stay at 16 bits or above
    about: str
    accuracy: str = ""  # what it may cost in accuracy, with the source; empty for the usual bf16 and for fp32
    width: float = 1.0  # of a weight or an activation relative to 16 bits
    operand: float = 1.0  # of a linear layer relative to 16 bits, scales included
    master: float = 4.0  # master copy of a parameter [byte]
    # Whether bf16 weights are its upper half, cast by the optimizer: not fp16, nor recipes whose scales are
    # made of the master copy (Megatron-Core 0.19.2, megatron/core/optimizer/optimizer_config.py)
    splits_master: bool = False
    accumulation: Literal["16-bit", "fp32"] | None = None  # of gradients; None if the software stack decides
    gates: float = 1.0  # inputs of an expert's activation function that are saved, relative to 16 bits
    copies: float = 0.0  # further copies of a parameter in lower precision [byte]
    casts: float = 0.0  # casts of every operand of a linear layer; more than 1 if that takes further reads
    reduced_rate: float = 1.0  # achieved part of `rate`, below 1 if scaling slows products down
    microscaling: bool = (
        False  # one scale per block of 16 or 32 elements in the matrix units (Blackwell, CDNA 4)
    )

    @property
    def is_low(self) -> bool:
        """Whether products run below 16 bits."""
        return self.rate not in ("fp32", "16-bit")


@dataclass(frozen=True)
class Optimizer:
    """Optimizer recipe: the states of every parameter, and the matrix products of a step."""

    name: str
    state: float  # of a parameter [byte]
    about: str
    accuracy: str = ""  # as for a precision; empty for the usual Adam
    iterations: float = 0.0  # of Newton-Schulz on a weight matrix (Muon's orthogonalisation)
    # beside `state`, of a parameter of embedding and head, which another optimizer steps [byte]
    vocabulary_state: float = 0.0
    roots: float = 0.0  # of second moments, in the moments' own precision, of a parameter [byte]
    precision_aware: bool = False  # whether Megatron-Core needs its precision-aware optimizer for it


_RECIPES = (
    Precision("fp32", "fp32", "single precision throughout", width=2.0, operand=2.0, master=0.0),
    # Loss scaling makes gradients fit fp16: Megatron-LM and DeepSpeed accumulate bf16 gradients in fp32, fp16
    # ones in fp16.
    Precision(
        "fp16",
        "16-bit",
        "fp16 with an fp32 master copy (arXiv 1710.03740)",
        accuracy="as accurate as fp32 with loss scaling (arXiv 1710.03740)",
        accumulation="16-bit",
    ),
    Precision("bf16", "16-bit", "bf16 with an fp32 master copy (arXiv 1905.12322)", splits_master=True),
    Precision(
        "bf16-pure",
        "16-bit",
        "bf16 weights, no master copy",
        accuracy="small updates are lost: it lags behind an fp32 master copy (arXiv 2112.11446, appendix C)",
        master=0.0,
    ),
    # Transformer Engine keeps the 16-bit parameter and, while a step lasts, its fp8 copy.
    Precision(
        "fp8",
        "fp8",
        "fp8 products, delayed scaling (arXiv 2209.05433)",
        accuracy="language models of up to 175B parameters met the quality of 16 bits (arXiv 2209.05433)",
        operand=0.5,
        copies=1.0,
        casts=1.0,
        splits_master=True,
    ),
    # A tensor is read once more before the cast, to find its scale: 1.5 times the traffic.
    Precision(
        "fp8-current",
        "fp8",
        "fp8 products, current scaling: one more read",
        accuracy="Nemotron-H lost below 0.1 % of the loss, with its first and last layers in bf16"
        " (arXiv 2504.03624)",
        operand=0.5,
        copies=1.0,
        casts=1.5,
    ),
    # A scale for every row of one operand and every column of the other (torchao): a separate kernel for
    # either layout, each of which reads twice; products of 2025's CUTLASS kernels are a third faster than at
    # 16 bits (torchtitan issue 1207).
    Precision(
        "fp8-rowwise",
        "fp8",
        "fp8 products, a scale for every row and column",
        accuracy="closer to bf16 than a scale per tensor (torchao, torchao/float8/README.md)",
        operand=0.5,
        copies=1.0,
        casts=4.0,
        reduced_rate=0.65,
    ),
    # Quantised right before the product, forward and backward, with a scale for every row (AQT in MaxText):
    # one more read. Gradients are rounded stochastically; two published runs on TPUs reach 0.75 of the rate
    # without rounding.
    Precision(
        "int8",
        "int8",
        "int8 products, all else as bf16",
        accuracy="needs stochastic rounding of gradients to stay near bf16 (google/aqt, README.md)",
        operand=0.5,
        casts=1.5,
        reduced_rate=0.75,
    ),
    # DeepSeek-V3 (arXiv 2412.19437, section 3.3): tiles of 1 x 128 with fp32 scales, (1 + 4/128)/2 of 16
    # bits; gates: section 3.3.2. Scaling inside the product is assumed to cost 7 %.
    Precision(
        "fp8-block",
        "fp8",
        "fp8 products, scales per block",
        accuracy="DeepSeek's loss stayed within 0.25 % of that in bf16 (arXiv 2412.19437, section 3.3)",
        operand=0.516,
        gates=0.516,
        copies=1.03,
        casts=1.0,
        reduced_rate=0.93,
    ),
    # OCP microscaling: one 8-bit scale for 32 elements, (1 + 1/32)/2 of 16 bits. Products are taken to be
    # 12 % slower than with scales per tensor: with 7 %, of seven pairs of published runs on Blackwell
    # that differ in the recipe alone, that with microscaling is predicted 4 % faster relative to the
    # other than measured.
    Precision(
        "mxfp8",
        "fp8",
        "fp8 products, microscaling",
        accuracy="an 8B model trained on 15T tokens matched bf16 (arXiv 2506.08027)",
        operand=0.516,
        copies=1.03,
        casts=1.0,
        reduced_rate=0.88,
        microscaling=True,
    ),
    # NVFP4: one 8-bit scale for 16 elements of 4 bits, (4 + 8/16)/16 of 16 bits.
    Precision(
        "nvfp4",
        "fp4",
        "4-bit products, one scale for 16 elements",
        accuracy="the loss of a 12B model on 10T tokens ended about 1.5 % above fp8 (arXiv 2509.25149)",
        operand=0.28,
        copies=0.56,
        casts=1.0,
        microscaling=True,
        splits_master=True,
    ),
)
_OPTIMIZERS = (
    Optimizer("adam", 8.0, "Adam or AdamW, two fp32 moments (arXiv 1412.6980)", roots=4.0),
    Optimizer(
        "adam-bf16",
        4.0,
        "AdamW, two bf16 moments",
        roots=2.0,
        precision_aware=True,
        accuracy="DeepSeek-V3 saw no loss of accuracy (arXiv 2412.19437, section 3.3.3)",
    ),
    Optimizer(
        "adam-8bit",
        2.0,
        "AdamW, two 8-bit moments (arXiv 2110.02861)",
        precision_aware=True,
        accuracy="matches 32 bits if the embedding's moments stay in 32 bits (arXiv 2110.02861)",
    ),
    Optimizer(
        "adam-4bit",
        1.0,
        "AdamW, two 4-bit moments (arXiv 2309.01507)",
        precision_aware=True,
        accuracy="comparable to 32 bits in fine-tuning and pretraining (arXiv 2309.01507)",
    ),
    Optimizer(
        "sgd",
        4.0,
        "SGD with one fp32 momentum",
        accuracy="falls behind Adam on attention models (arXiv 1912.03194)",
    ),
    Optimizer(
        "lion",
        4.0,
        "Lion, one fp32 momentum (arXiv 2302.06675)",
        accuracy="as good as AdamW with its own learning rate and decay (arXiv 2302.06675)",
    ),
    Optimizer(
        "adafactor",
        4.0,
        "Adafactor with fp32 momentum, its row and column means negligible (arXiv 1804.04235)",
        accuracy="comparable to Adam in translation (arXiv 1804.04235)",
    ),
    # Five Newton-Schulz iterations of three products each, on a matrix and its smaller square (Jordan et al.
    # 2024). Embedding and head have the two moments of Adam instead (there too; Megatron-Core 0.19.2,
    # core/optimizer/emerging_optimizers.py, _is_nonlinear_or_embedding, and --muon-scalar-optimizer adam).
    Optimizer(
        "muon",
        4.0,
        "Muon, one fp32 momentum, orthogonalised by Newton-Schulz",
        accuracy="meets AdamW's loss with about half of the compute (arXiv 2502.16982)",
        iterations=5.0,
        vocabulary_state=4.0,
    ),
)
PRECISIONS: Final = {recipe.name: recipe for recipe in _RECIPES}
OPTIMIZERS: Final = {recipe.name: recipe for recipe in _OPTIMIZERS}
REMAINDER: Final = 2.0  # of a master copy: the half that bf16 weights lack [byte]
GRADIENTS: Final = {"16-bit": 2.0, "fp32": 4.0}  # size of an accumulated gradient [byte]
