import torch
import triton
import triton.language as tl


@triton.jit
def _group_norm_silu_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, x_stride_0, x_stride_1, x_stride_2, x_stride_3,
    weight_stride_0, bias_stride_0, n_rows, n_cols, x_size_1, x_size_2, x_size_3,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    dtype = x_ptr.dtype.element_ty  # eager rounds to it where the casts stand
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_0 = row // 4
    row_1 = row % 4
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(
        x_ptr + row_0 * x_stride_0
        + (row_1 * (x_size_1 // 4) + (col // (x_size_2 * x_size_3))) * x_stride_1
        + ((col // x_size_3) - (col // (x_size_2 * x_size_3)) * x_size_2) * x_stride_2
        + (col % x_size_3) * x_stride_3, mask=mask, other=0.0,
    ).to(tl.float32)
    total = tl.sum(x, axis=1, keep_dims=True)
    size = (x_size_1 // 4) * x_size_2 * x_size_3
    gap = x - total / size
    total_2 = tl.sum(tl.where(col_mask, gap * gap, 0.0), axis=1, keep_dims=True)
    weight = tl.load(
        weight_ptr + (row_1 * (x_size_1 // 4) + (col // (x_size_2 * x_size_3))) * weight_stride_0,
        mask=mask, other=0.0,
    ).to(tl.float32)
    scaled = gap * tl.rsqrt(total_2 / size + 1e-05) * weight
    bias = tl.load(
        bias_ptr + (row_1 * (x_size_1 // 4) + (col // (x_size_2 * x_size_3))) * bias_stride_0,
        mask=mask, other=0.0,
    ).to(tl.float32)
    shifted = (scaled + bias).to(dtype).to(tl.float32)
    tl.store(out_ptr + row * n_cols + col, shifted * tl.sigmoid(shifted), mask=mask)


@triton.jit
def _group_norm_silu_long_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, x_stride_0, x_stride_1, x_stride_2, x_stride_3,
    weight_stride_0, bias_stride_0, n_rows, n_cols, x_size_1, x_size_2, x_size_3,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows: 3 passes over the row, COLS places at a time."""
    dtype = x_ptr.dtype.element_ty  # eager rounds to it where the casts stand
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_0 = row // 4
    row_1 = row % 4
    row_mask = row < n_rows
    total_block = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row_0 * x_stride_0
            + (row_1 * (x_size_1 // 4) + (col // (x_size_2 * x_size_3))) * x_stride_1
            + ((col // x_size_3) - (col // (x_size_2 * x_size_3)) * x_size_2) * x_stride_2
            + (col % x_size_3) * x_stride_3, mask=mask, other=0.0,
        ).to(tl.float32)
        total_block += x
    total = tl.sum(total_block, axis=1, keep_dims=True)
    size = (x_size_1 // 4) * x_size_2 * x_size_3
    mean = total / size
    total_block_2 = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row_0 * x_stride_0
            + (row_1 * (x_size_1 // 4) + (col // (x_size_2 * x_size_3))) * x_stride_1
            + ((col // x_size_3) - (col // (x_size_2 * x_size_3)) * x_size_2) * x_stride_2
            + (col % x_size_3) * x_stride_3, mask=mask, other=0.0,
        ).to(tl.float32)
        gap = x - mean
        total_block_2 += tl.where(col_mask, gap * gap, 0.0)
    total_2 = tl.sum(total_block_2, axis=1, keep_dims=True)
    rsqrt = tl.rsqrt(total_2 / size + 1e-05)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row_0 * x_stride_0
            + (row_1 * (x_size_1 // 4) + (col // (x_size_2 * x_size_3))) * x_stride_1
            + ((col // x_size_3) - (col // (x_size_2 * x_size_3)) * x_size_2) * x_stride_2
            + (col % x_size_3) * x_stride_3, mask=mask, other=0.0,
        ).to(tl.float32)
        gap = x - mean
        weight = tl.load(
            weight_ptr
            + (row_1 * (x_size_1 // 4) + (col // (x_size_2 * x_size_3))) * weight_stride_0,
            mask=mask, other=0.0,
        ).to(tl.float32)
        bias = tl.load(
            bias_ptr + (row_1 * (x_size_1 // 4) + (col // (x_size_2 * x_size_3))) * bias_stride_0,
            mask=mask, other=0.0,
        ).to(tl.float32)
        shifted = (gap * rsqrt * weight + bias).to(dtype).to(tl.float32)
        tl.store(out_ptr + row * n_cols + col, shifted * tl.sigmoid(shifted), mask=mask)


def group_norm_silu(x, weight, bias):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):
        n_rows = 4 * x.shape[0]
        n_cols = (x.shape[1] // 4) * x.shape[2] * x.shape[3]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _group_norm_silu_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _group_norm_silu_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            x, weight, bias, out, x.stride(0), x.stride(1), x.stride(2), x.stride(3),
            weight.stride(0), bias.stride(0), n_rows, n_cols, x.shape[1], x.shape[2], x.shape[3],
            ROWS=rows, COLS=cols, num_warps=max(1, min(16, rows * cols // 512)),
        )
    return out
