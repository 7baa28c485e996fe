import torch
import triton
import triton.language as tl


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _softmax_kernel(
    x_ptr, out_ptr, x_stride_0, x_stride_1, out_stride_0, out_stride_1, n_rows, n_cols,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0).to(tl.float32)
    amax = tl.reduce(tl.where(col_mask, x, float("-inf")), 1, _maximum, keep_dims=True)
    exp = tl.exp(x - amax)
    total = tl.sum(tl.where(col_mask, exp, 0.0), axis=1, keep_dims=True)
    tl.store(out_ptr + row * out_stride_0 + col * out_stride_1, exp / total, mask=mask)


@triton.jit
def _softmax_long_kernel(
    x_ptr, out_ptr, x_stride_0, x_stride_1, out_stride_0, out_stride_1, n_rows, n_cols,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows: 3 passes over the row, COLS places at a time."""
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
            amax_block, tl.where(col_mask, x, float("-inf")), propagate_nan=tl.PropagateNan.ALL
        )
    amax = tl.reduce(amax_block, 1, _maximum, keep_dims=True)
    total_block = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        exp = tl.exp(x - amax)
        total_block += tl.where(col_mask, exp, 0.0)
    total = tl.sum(total_block, axis=1, keep_dims=True)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        exp = tl.exp(x - amax)
        tl.store(out_ptr + row * out_stride_0 + col * out_stride_1, exp / total, mask=mask)


def softmax(x):
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        n_rows = x.shape[0]
        n_cols = x.shape[1]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _softmax_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _softmax_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            x, out, x.stride(0), x.stride(1), out.stride(0), out.stride(1), n_rows, n_cols,
            ROWS=rows, COLS=cols, num_warps=max(1, min(16, rows * cols // 512)),
        )
    return out
