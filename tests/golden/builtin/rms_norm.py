import torch
import triton
import triton.language as tl


@triton.jit
def _rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, x_stride_0, x_stride_1, weight_stride_0, out_stride_0, out_stride_1,
    n_rows, n_cols, eps, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    dtype = x_ptr.dtype.element_ty  # eager rounds to it where the casts stand
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(x * x, axis=1, keep_dims=True)
    weight = tl.load(weight_ptr + col * weight_stride_0, mask=col_mask, other=0.0).to(tl.float32)
    variance = total / n_cols
    scaled = (x * tl.rsqrt(variance + eps)).to(dtype).to(tl.float32)
    tl.store(out_ptr + row * out_stride_0 + col * out_stride_1, weight * scaled, mask=mask)


@triton.jit
def _rms_norm_long_kernel(
    x_ptr, weight_ptr, out_ptr, x_stride_0, x_stride_1, weight_stride_0, out_stride_0, out_stride_1,
    n_rows, n_cols, eps, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows: 2 passes over the row, COLS places at a time."""
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
        total_block += x * x
    total = tl.sum(total_block, axis=1, keep_dims=True)
    variance = total / n_cols
    rsqrt = tl.rsqrt(variance + eps)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        weight = tl.load(
            weight_ptr + col * weight_stride_0, mask=col_mask, other=0.0
        ).to(tl.float32)
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        scaled = weight * (x * rsqrt).to(dtype).to(tl.float32)
        tl.store(out_ptr + row * out_stride_0 + col * out_stride_1, scaled, mask=mask)


def rms_norm(x, weight, eps=1e-06):
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        n_rows = x.shape[0]
        n_cols = x.shape[1]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _rms_norm_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _rms_norm_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            x, weight, out, x.stride(0), x.stride(1), weight.stride(0), out.stride(0),
            out.stride(1), n_rows, n_cols, eps, ROWS=rows, COLS=cols,
            num_warps=max(1, min(16, rows * cols // 512)),
        )
    return out
