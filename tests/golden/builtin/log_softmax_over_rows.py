import torch
import triton
import triton.language as tl


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _log_softmax_over_rows_kernel(
    x_ptr, out_ptr, x_stride_0, x_stride_1, out_stride_0, out_stride_1, n_rows, n_cols,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + col * x_stride_0 + row * x_stride_1, mask=mask, other=0.0).to(tl.float32)
    amax = tl.reduce(tl.where(col_mask, x, float("-inf")), 1, _maximum, keep_dims=True)
    gap = x - amax
    total = tl.sum(tl.where(col_mask, tl.exp(gap), 0.0), axis=1, keep_dims=True)
    tl.store(out_ptr + col * out_stride_0 + row * out_stride_1, gap - tl.log(total), mask=mask)


@triton.jit
def _log_softmax_over_rows_long_kernel(
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
            x_ptr + col * x_stride_0 + row * x_stride_1, mask=mask, other=0.0
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
            x_ptr + col * x_stride_0 + row * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        gap = x - amax
        total_block += tl.where(col_mask, tl.exp(gap), 0.0)
    total = tl.sum(total_block, axis=1, keep_dims=True)
    log = tl.log(total)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + col * x_stride_0 + row * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        gap = x - amax
        tl.store(out_ptr + col * out_stride_0 + row * out_stride_1, gap - log, mask=mask)


def log_softmax_over_rows(x):
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        n_rows = x.shape[1]
        n_cols = x.shape[0]
        if n_cols <= 256:  # the row fits in registers
            kernel = _log_softmax_over_rows_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(32, 1024 // cols)
        else:
            kernel = _log_softmax_over_rows_long_kernel
            rows, cols = 64, 64
        kernel[(triton.cdiv(n_rows, rows),)](
            x, out, x.stride(0), x.stride(1), out.stride(0), out.stride(1), n_rows, n_cols,
            ROWS=rows, COLS=cols, num_warps=max(1, min(16, rows * cols // 512)),
        )
    return out
