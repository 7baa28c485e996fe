import torch
import triton
import triton.language as tl


@triton.jit
def _column_statistics_kernel(
    x_ptr, mean_ptr, var_ptr, x_stride_0, x_stride_1, n_rows, n_cols, ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + col * x_stride_0 + row * x_stride_1, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(x, axis=1, keep_dims=True)
    mean = total / n_cols
    gap = x - mean
    total_2 = tl.sum(tl.where(col_mask, gap * gap, 0.0), axis=1, keep_dims=True)
    tl.store(mean_ptr + row, mean, mask=row_mask)
    tl.store(var_ptr + row, total_2 / (n_cols - 1), mask=row_mask)


@triton.jit
def _column_statistics_long_kernel(
    x_ptr, mean_ptr, var_ptr, x_stride_0, x_stride_1, n_rows, n_cols, ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS rows: 2 passes over the row, COLS places at a time."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    total_block = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + col * x_stride_0 + row * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        total_block += x
    total = tl.sum(total_block, axis=1, keep_dims=True)
    mean = total / n_cols
    total_block_2 = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + col * x_stride_0 + row * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        gap = x - mean
        total_block_2 += tl.where(col_mask, gap * gap, 0.0)
    total_2 = tl.sum(total_block_2, axis=1, keep_dims=True)
    tl.store(mean_ptr + row, mean, mask=row_mask)
    tl.store(var_ptr + row, total_2 / (n_cols - 1), mask=row_mask)


def column_statistics(x):
    mean = torch.empty((x.shape[1],), dtype=x.dtype, device=x.device)
    var = torch.empty((x.shape[1],), dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):
        n_rows = x.shape[1]
        n_cols = x.shape[0]
        if n_cols <= 256:  # the row fits in registers
            kernel = _column_statistics_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(32, 1024 // cols)
        else:
            kernel = _column_statistics_long_kernel
            rows, cols = 64, 64
        kernel[(triton.cdiv(n_rows, rows),)](
            x, mean, var, x.stride(0), x.stride(1), n_rows, n_cols, ROWS=rows, COLS=cols,
            num_warps=max(1, min(16, rows * cols // 512)),
        )
    return mean, var
