"""A transformer block's residual add followed by layer normalisation, as a module's method: both results are used."""

import torch
import torch.nn.functional as F
from torch import nn


class AddLayerNorm(nn.Module):
    """Returns the normalised sum and the sum itself, which is the next block's residual."""

    def __init__(self, width: int = 4096, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    # inputs: x: f32[4, 512, 4096], residual: f32[4, 512, 4096]
    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return F.layer_norm(total, (total.shape[-1],), self.weight, self.bias, self.eps), total
