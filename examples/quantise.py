"""Symmetric row-wise quantisation to int8. No inputs are written here: the editor asks for them."""

import torch


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-5) / 127.0
    return torch.round(x.float() / scale).clamp(-128, 127).to(torch.int8), scale
