import torch
import triton
import triton.language as tl


@triton.jit
def _rope_kernel(
    q_ptr, cos_ptr, sin_ptr, out_ptr, q_stride_0, q_stride_1, q_stride_2, q_stride_3, cos_stride_0,
    cos_stride_1, cos_stride_2, sin_stride_0, sin_stride_1, sin_stride_2, out_stride_0,
    out_stride_1, out_stride_2, out_stride_3, n_rows, n_cols, q_size_1, q_size_2,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program computes a tile of the output."""
    dtype = q_ptr.dtype.element_ty  # eager rounds to it where the casts stand
    pid = tl.program_id(0)
    row = (pid // tl.cdiv(n_cols, COLS)).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_0 = row // (q_size_1 * q_size_2)
    row_1 = row // q_size_2 % q_size_1
    row_2 = row % q_size_2
    row_mask = row < n_rows
    col = (pid % tl.cdiv(n_cols, COLS)).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    col_mask = col < n_cols
    mask = row_mask & col_mask
    q = tl.load(
        q_ptr + row_0 * q_stride_0 + row_1 * q_stride_1 + row_2 * q_stride_2 + col * q_stride_3,
        mask=mask, other=0.0,
    ).to(tl.float32)
    cos = tl.load(
        cos_ptr + row_0 * cos_stride_0 + row_2 * cos_stride_1 + col * cos_stride_2, mask=mask,
        other=0.0,
    ).to(tl.float32)
    before = col < n_cols - (n_cols // 2)
    q_2 = tl.load(
        q_ptr + row_0 * q_stride_0 + row_1 * q_stride_1 + row_2 * q_stride_2
        + (col + (n_cols // 2)) * q_stride_3, mask=mask & before, other=0.0,
    ).to(tl.float32)
    q_3 = tl.load(
        q_ptr + row_0 * q_stride_0 + row_1 * q_stride_1 + row_2 * q_stride_2
        + (col + (n_cols // 2) - n_cols) * q_stride_3, mask=mask & (~before), other=0.0,
    ).to(tl.float32)
    sin = tl.load(
        sin_ptr + row_0 * sin_stride_0 + row_2 * sin_stride_1 + col * sin_stride_2, mask=mask,
        other=0.0,
    ).to(tl.float32)
    scaled = (tl.where(before, -q_2, q_3) * sin).to(dtype).to(tl.float32)
    tl.store(
        out_ptr + row_0 * out_stride_0 + row_1 * out_stride_1 + row_2 * out_stride_2
        + col * out_stride_3, (q * cos).to(dtype).to(tl.float32) + scaled, mask=mask,
    )


def rope(q, cos, sin):
    out = torch.empty_like(q)
    with torch.cuda.device_of(q):
        n_rows = q.shape[0] * q.shape[1] * q.shape[2]
        n_cols = q.shape[3]
        cols = min(triton.next_power_of_2(max(n_cols, 1)), 1024)
        rows = 1024 // cols
        grid = (triton.cdiv(n_rows, rows) * triton.cdiv(n_cols, cols),)
        _rope_kernel[grid](
            q, cos, sin, out, q.stride(0), q.stride(1), q.stride(2), q.stride(3), cos.stride(0),
            cos.stride(1), cos.stride(2), sin.stride(0), sin.stride(1), sin.stride(2),
            out.stride(0), out.stride(1), out.stride(2), out.stride(3), n_rows, n_cols, q.shape[1],
            q.shape[2], ROWS=rows, COLS=cols,
        )
    return out
