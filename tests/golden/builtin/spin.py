import torch
import triton
import triton.language as tl


@triton.jit
def _spin_kernel(
    x_ptr, table_ptr, out_ptr, x_stride_0, x_stride_1, x_stride_2, table_stride_0, table_stride_1,
    table_stride_2, n_rows, n_cols, x_size_1, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program computes a tile of the output."""
    pid = tl.program_id(0)
    row = (pid // tl.cdiv(n_cols, COLS)).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_0 = row // x_size_1
    row_1 = row % x_size_1
    row_mask = row < n_rows
    col = (pid % tl.cdiv(n_cols, COLS)).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(
        x_ptr + row_0 * x_stride_0 + row_1 * x_stride_1 + 2 * (col // 2) * x_stride_2, mask=mask,
        other=0.0,
    ).to(tl.float32)
    table = tl.load(
        table_ptr + row_0 * table_stride_0 + (col // 2) * table_stride_1, mask=mask, other=0.0
    )
    x_2 = tl.load(
        x_ptr + row_0 * x_stride_0 + row_1 * x_stride_1 + (2 * (col // 2) + 1) * x_stride_2,
        mask=mask, other=0.0,
    ).to(tl.float32)
    table_2 = tl.load(
        table_ptr + row_0 * table_stride_0 + (col // 2) * table_stride_1 + table_stride_2,
        mask=mask, other=0.0,
    )
    view_as_real = tl.where((col % 2) < 1, x * table - x_2 * table_2, x * table_2 + x_2 * table)
    tl.store(out_ptr + row * n_cols + col, view_as_real, mask=mask)


def spin(x, table):
    table = torch.view_as_real(table)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):
        n_rows = x.shape[0] * x.shape[1]
        n_cols = 2 * table.shape[1]
        cols = min(triton.next_power_of_2(max(n_cols, 1)), 1024)
        rows = 1024 // cols
        grid = (triton.cdiv(n_rows, rows) * triton.cdiv(n_cols, cols),)
        _spin_kernel[grid](
            x, table, out, x.stride(0), x.stride(1), x.stride(2), table.stride(0), table.stride(1),
            table.stride(2), n_rows, n_cols, x.shape[1], ROWS=rows, COLS=cols,
        )
    return out
