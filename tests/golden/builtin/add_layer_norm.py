import torch
import triton
import triton.language as tl


@triton.jit
def _add_layer_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_0_ptr, hidden_ptr, x_stride_0, x_stride_1,
    residual_stride_0, residual_stride_1, weight_stride_0, bias_stride_0, out_0_stride_0,
    out_0_stride_1, hidden_stride_0, hidden_stride_1, n_rows, n_cols, ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    dtype = x_ptr.dtype.element_ty  # eager rounds to it where the casts stand
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(
        residual_ptr + row * residual_stride_0 + col * residual_stride_1, mask=mask, other=0.0
    ).to(tl.float32)
    hidden = x + residual
    hidden_2 = hidden.to(dtype).to(tl.float32)
    total = tl.sum(hidden_2, axis=1, keep_dims=True)
    gap = hidden_2 - total / n_cols
    total_2 = tl.sum(tl.where(col_mask, gap * gap, 0.0), axis=1, keep_dims=True)
    weight = tl.load(weight_ptr + col * weight_stride_0, mask=col_mask, other=0.0).to(tl.float32)
    scaled = gap * tl.rsqrt(total_2 / n_cols + 1e-05) * weight
    bias = tl.load(bias_ptr + col * bias_stride_0, mask=col_mask, other=0.0).to(tl.float32)
    tl.store(out_0_ptr + row * out_0_stride_0 + col * out_0_stride_1, scaled + bias, mask=mask)
    tl.store(hidden_ptr + row * hidden_stride_0 + col * hidden_stride_1, hidden, mask=mask)


@triton.jit
def _add_layer_norm_long_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_0_ptr, hidden_ptr, x_stride_0, x_stride_1,
    residual_stride_0, residual_stride_1, weight_stride_0, bias_stride_0, out_0_stride_0,
    out_0_stride_1, hidden_stride_0, hidden_stride_1, n_rows, n_cols, ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS rows: 3 passes over the row, COLS places at a time."""
    dtype = x_ptr.dtype.element_ty  # eager rounds to it where the casts stand
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    total_block = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        residual = tl.load(
            residual_ptr + row * residual_stride_0 + col * residual_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        hidden = x + residual
        hidden_2 = hidden.to(dtype).to(tl.float32)
        total_block += hidden_2
        tl.store(hidden_ptr + row * hidden_stride_0 + col * hidden_stride_1, hidden, mask=mask)
    total = tl.sum(total_block, axis=1, keep_dims=True)
    mean = total / n_cols
    total_block_2 = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        residual = tl.load(
            residual_ptr + row * residual_stride_0 + col * residual_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        hidden = x + residual
        hidden_2 = hidden.to(dtype).to(tl.float32)
        gap = hidden_2 - mean
        total_block_2 += tl.where(col_mask, gap * gap, 0.0)
    total_2 = tl.sum(total_block_2, axis=1, keep_dims=True)
    rsqrt = tl.rsqrt(total_2 / n_cols + 1e-05)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        residual = tl.load(
            residual_ptr + row * residual_stride_0 + col * residual_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        hidden = x + residual
        hidden_2 = hidden.to(dtype).to(tl.float32)
        gap = hidden_2 - mean
        weight = tl.load(
            weight_ptr + col * weight_stride_0, mask=col_mask, other=0.0
        ).to(tl.float32)
        bias = tl.load(bias_ptr + col * bias_stride_0, mask=col_mask, other=0.0).to(tl.float32)
        tl.store(
            out_0_ptr + row * out_0_stride_0 + col * out_0_stride_1, gap * rsqrt * weight + bias,
            mask=mask,
        )


def add_layer_norm(x, residual, weight, bias):
    out_0 = torch.empty_like(x)
    hidden = torch.empty_like(x)
    with torch.cuda.device_of(x):
        n_rows = x.shape[0]
        n_cols = x.shape[1]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _add_layer_norm_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _add_layer_norm_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            x, residual, weight, bias, out_0, hidden, x.stride(0), x.stride(1), residual.stride(0),
            residual.stride(1), weight.stride(0), bias.stride(0), out_0.stride(0), out_0.stride(1),
            hidden.stride(0), hidden.stride(1), n_rows, n_cols, ROWS=rows, COLS=cols,
            num_warps=max(1, min(16, rows * cols // 512)),
        )
    return out_0, hidden
