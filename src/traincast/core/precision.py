"""Precision and optimizer recipes: bytes stored per parameter, and the precision of matrix products.

Bytes per parameter follow the usual account of mixed-precision training (arXiv 1710.03740, 1910.02054 section 3.1); the states of
each optimizer follow its paper.
"""

from dataclasses import dataclass
from typing import Final, Literal

Rate = Literal["fp32", "16-bit", "fp8", "int8", "fp4"]  # which peak of the matrix unit a product runs at


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Precision recipe: sizes of weights, activations and operands, and the rate of products."""

    name: str  # name of the recipe
    rate: Rate  # matrix peak of linear layers; attention and the output head stay at 16 bits or above
    width: float = 1.0  # size of a weight or an activation relative to 16 bits
    operand: float = 1.0  # size of an operand of a linear layer relative to 16 bits, scales included
    master: float = 4.0  # size of the master copy of a parameter [byte]
    # Precision of accumulated gradients if the plan's `grad_dtype` is "usual"; None if the software stack
    # decides.
    accumulation: Literal["16-bit", "fp32"] | None = None
    # Size of the inputs of an expert's activation function that are saved for backward, relative to 16
    # bits.
    gates: float = 1.0
    copies: float = 0.0  # size of further copies of a parameter in lower precision [byte]
    # Casts of every operand of a linear layer: 1 if operands are cast to lower precision; more if that
    # takes further reads.
    casts: float = 0.0
    reduced_rate: float = 1.0  # achieved part of `rate`, below 1 if scaling slows products down
    # Whether the matrix units apply one scale per block of 16 or 32 elements (Blackwell, CDNA 4).
    microscaling: bool = False
    about: str = ""  # one-line description


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Optimizer recipe: the states of every parameter, and the matrix products of a step."""

    name: str  # name of the recipe
    state: float  # size of the states of a parameter [byte]
    # Newton-Schulz iterations on a weight matrix (Muon's orthogonalisation); 0 for other optimizers.
    iterations: float = 0.0
    about: str = ""  # one-line description


PRECISIONS: Final = {
    recipe.name: recipe
    for recipe in (
        Precision(
            name="fp32", rate="fp32", width=2.0, operand=2.0, master=0.0, about="single precision throughout"
        ),
        # Loss scaling makes gradients fit fp16: Megatron-LM and DeepSpeed accumulate bf16 gradients in fp32, fp16 ones in fp16.
        Precision(
            name="fp16",
            rate="16-bit",
            accumulation="16-bit",
            about="fp16 with an fp32 master copy (arXiv 1710.03740)",
        ),
        Precision(name="bf16", rate="16-bit", about="bf16 with an fp32 master copy (arXiv 1905.12322)"),
        Precision(name="bf16-pure", rate="16-bit", master=0.0, about="bf16 weights, no master copy"),
        # Transformer Engine keeps the 16-bit parameter and, while a step lasts, its fp8 copy.
        Precision(
            name="fp8",
            rate="fp8",
            operand=0.5,
            copies=1.0,
            casts=1.0,
            about="fp8 products, delayed scaling (arXiv 2209.05433)",
        ),
        # A tensor is read once more before the cast, to find its scale: 1.5 times the traffic.
        Precision(
            name="fp8-current",
            rate="fp8",
            operand=0.5,
            copies=1.0,
            casts=1.5,
            about="fp8 products, current scaling: one more read",
        ),
        # A scale for every row of one operand and every column of the other (torchao): a separate kernel for either layout, each of
        # which reads twice; products of 2025's CUTLASS kernels are a third faster than at 16 bits (torchtitan issue 1207).
        Precision(
            name="fp8-rowwise",
            rate="fp8",
            operand=0.5,
            copies=1.0,
            casts=4.0,
            reduced_rate=0.65,
            about="fp8 products, a scale for every row and column",
        ),
        # Quantised right before the product, forward and backward, with a scale for every row (AQT in MaxText): one more read.
        # Gradients are rounded stochastically; two published runs on TPUs reach 0.75 of the rate without rounding.
        Precision(
            name="int8",
            rate="int8",
            operand=0.5,
            casts=1.5,
            reduced_rate=0.75,
            about="int8 products, all else as bf16",
        ),
        # DeepSeek-V3 (arXiv 2412.19437, section 3.3): tiles of 1 x 128 with fp32 scales, (1 + 4/128)/2 of 16 bits. Scaling inside
        # the product is assumed to cost 7 %, as for mxfp8.
        Precision(
            name="fp8-block",
            rate="fp8",
            operand=0.516,
            gates=0.516,  # section 3.3.2
            copies=1.03,
            casts=1.0,
            reduced_rate=0.93,
            about="fp8 products, scales per block",
        ),
        # OCP microscaling: one 8-bit scale for 32 elements, (1 + 1/32)/2 of 16 bits. 7 % slower than scales per tensor in a fit of
        # published Megatron-Bridge runs on Blackwell.
        Precision(
            name="mxfp8",
            rate="fp8",
            operand=0.516,
            copies=1.03,
            casts=1.0,
            reduced_rate=0.93,
            microscaling=True,
            about="fp8 products, microscaling",
        ),
        # NVFP4: one 8-bit scale for 16 elements of 4 bits, (4 + 8/16)/16 of 16 bits.
        Precision(
            name="nvfp4",
            rate="fp4",
            operand=0.28,
            copies=0.56,
            casts=1.0,
            microscaling=True,
            about="4-bit products, one scale for 16 elements",
        ),
    )
}
OPTIMIZERS: Final = {
    recipe.name: recipe
    for recipe in (
        Optimizer(name="adam", state=8.0, about="Adam or AdamW, two fp32 moments (arXiv 1412.6980)"),
        Optimizer(name="adam-bf16", state=4.0, about="AdamW, two bf16 moments"),
        Optimizer(name="adam-8bit", state=2.0, about="AdamW, two 8-bit moments (arXiv 2110.02861)"),
        Optimizer(name="sgd", state=4.0, about="SGD with one fp32 momentum"),
        Optimizer(name="lion", state=4.0, about="Lion, one fp32 momentum (arXiv 2302.06675)"),
        Optimizer(
            name="adafactor",
            state=4.0,
            about="Adafactor with fp32 momentum, its row and column means negligible (arXiv 1804.04235)",
        ),
        # Five Newton-Schulz iterations of three products each, on a matrix and its smaller square (Jordan et al. 2024).
        Optimizer(
            name="muon",
            state=4.0,
            iterations=5.0,
            about="Muon, one fp32 momentum, orthogonalised by Newton-Schulz",
        ),
    )
}
GRADIENTS: Final = {"16-bit": 2.0, "fp32": 4.0}  # size of an accumulated gradient [byte]
