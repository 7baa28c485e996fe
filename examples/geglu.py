"""The gated feed-forward activation of Gemma: a tanh-approximated GELU times a gate."""

import torch
import torch.nn.functional as F


# inputs: gate: bf16[16384, 14336], up: bf16[16384, 14336]
def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.gelu(gate, approximate="tanh") * up
