"""Counting: the operations of one layer, per rank and micro-batch (arXiv 2410.00273, operations of a layer).

Pure arithmetic on numbers, columns over plans or symbols. Formulas use the letters of the paper:

==========  ===========================================================================================
symbol      meaning
==========  ===========================================================================================
b           micro-batch: sequences
l           sequence length: tokens, and keys of a query
e           hidden width of the model
f           inner width of the MLP or of an expert
h, kv       heads of queries, and of keys and values
q, v        width of a head's query or key, and of its value
m1, m2      degrees that shard the layer: tp, and tp2 or cp
nb          panels of a SUMMA product
T           tokens of one micro-batch on the rank, b (l/m2)
lq          local queries of a sequence
E           size of an element [byte]
m, k, n     shapes of a product: m x k by k x n; n is elsewhere a number of elements
i, o        local input and output width of a linear layer
x, y, w     elements of a linear layer's input, output and weights; dx, dy, dw those of the gradients
r, rk       rows of queries, b h lq, and of keys or values, b kv l; r, w rows and width in norms
u           elements: uq of queries, uo of the result, uk of keys, uv of values
A, O        scores and result of attention, A = Q K', O = A V
n, K        tokens between blocks on the rank, and experts per token, in mixtures of experts
==========  ===========================================================================================
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
