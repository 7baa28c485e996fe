import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _quantise_kernel(
    x_ptr, out_0_ptr, scale_ptr, x_stride_0, x_stride_1, out_0_stride_0, out_0_stride_1, n_rows,
    n_cols, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0).to(tl.float32)
    amax = tl.reduce(tl.where(col_mask, tl.abs(x), float("-inf")), 1, _maximum, keep_dims=True)
    clamp = tl.maximum(amax, 1e-05, propagate_nan=tl.PropagateNan.ALL)
    scale = clamp / 127.0
    clamp_2 = tl.maximum(
        libdevice.rint(tl.div_rn(x, scale)), -128.0, propagate_nan=tl.PropagateNan.ALL
    )
    clamp_3 = tl.minimum(clamp_2, 127.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_0_ptr + row * out_0_stride_0 + col * out_0_stride_1, clamp_3, mask=mask)
    tl.store(scale_ptr + row, scale, mask=row_mask)


@triton.jit
def _quantise_long_kernel(
    x_ptr, out_0_ptr, scale_ptr, x_stride_0, x_stride_1, out_0_stride_0, out_0_stride_1, n_rows,
    n_cols, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows: 2 passes over the row, COLS places at a time."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    amax_block = tl.full((ROWS, COLS), float("-inf"), tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        amax_block = tl.maximum(
            amax_block, tl.where(col_mask, tl.abs(x), float("-inf")),
            propagate_nan=tl.PropagateNan.ALL,
        )
    amax = tl.reduce(amax_block, 1, _maximum, keep_dims=True)
    clamp = tl.maximum(amax, 1e-05, propagate_nan=tl.PropagateNan.ALL)
    scale = clamp / 127.0
    constant = -128.0
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        clamp_2 = tl.maximum(
            libdevice.rint(tl.div_rn(x, scale)), constant, propagate_nan=tl.PropagateNan.ALL
        )
        clamp_3 = tl.minimum(clamp_2, 127.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(out_0_ptr + row * out_0_stride_0 + col * out_0_stride_1, clamp_3, mask=mask)
    tl.store(scale_ptr + row, scale, mask=row_mask)


def quantise(x):
    out_0 = torch.empty_like(x, dtype=torch.int8)
    scale = torch.empty((x.shape[0], 1), dtype=torch.float32, device=x.device)
    with torch.cuda.device_of(x):
        n_rows = x.shape[0]
        n_cols = x.shape[1]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _quantise_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _quantise_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            x, out_0, scale, x.stride(0), x.stride(1), out_0.stride(0), out_0.stride(1), n_rows,
            n_cols, ROWS=rows, COLS=cols, num_warps=max(1, min(16, rows * cols // 512)),
        )
    return out_0, scale
