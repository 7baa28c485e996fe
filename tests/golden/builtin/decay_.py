import torch
import triton
import triton.language as tl


@triton.jit
def _decay__kernel(
    param_ptr, grad_ptr, param_stride_0, param_stride_1, grad_stride_0, grad_stride_1, n_rows,
    n_cols, one_minus_rate, minus_rate, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program computes a tile of the output."""
    dtype = param_ptr.dtype.element_ty  # eager rounds to it where the casts stand
    pid = tl.program_id(0)
    row = (pid // tl.cdiv(n_cols, COLS)).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = (pid % tl.cdiv(n_cols, COLS)).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    col_mask = col < n_cols
    mask = row_mask & col_mask
    param = tl.load(
        param_ptr + row * param_stride_0 + col * param_stride_1, mask=mask, other=0.0
    ).to(tl.float32)
    scaled = (param * one_minus_rate).to(dtype).to(tl.float32)
    grad = tl.load(
        grad_ptr + row * grad_stride_0 + col * grad_stride_1, mask=mask, other=0.0
    ).to(tl.float32)
    sign = (grad > 0).to(tl.float32) - (grad < 0).to(tl.float32)
    tl.store(
        param_ptr + row * param_stride_0 + col * param_stride_1, scaled + sign * minus_rate,
        mask=mask,
    )


def decay_(param, grad, rate):
    with torch.cuda.device_of(param):
        n_rows = param.shape[0]
        n_cols = param.shape[1]
        if param.is_contiguous() and grad.is_contiguous() and n_cols > 1:  # one long row
            n_rows, n_cols = 1, param.numel()
        cols = min(triton.next_power_of_2(max(n_cols, 1)), 1024)
        rows = 1024 // cols
        grid = (triton.cdiv(n_rows, rows) * triton.cdiv(n_cols, cols),)
        _decay__kernel[grid](
            param, grad, param.stride(0), param.stride(1), grad.stride(0), grad.stride(1), n_rows,
            n_cols, 1.0 - rate, -rate, ROWS=rows, COLS=cols,
        )
