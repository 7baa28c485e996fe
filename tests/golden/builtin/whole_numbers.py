import torch
import triton
import triton.language as tl


@triton.jit
def _whole_numbers_kernel(
    x_ptr, y_ptr, out_0_ptr, out_1_ptr, out_2_ptr, out_3_ptr, x_stride_0, x_stride_1, y_stride_0,
    y_stride_1, out_0_stride_0, out_0_stride_1, out_1_stride_0, out_1_stride_1, out_2_stride_0,
    out_2_stride_1, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0)
    y = tl.load(y_ptr + row * y_stride_0 + col * y_stride_1, mask=mask, other=0)
    total = tl.sum(tl.where(col_mask, x * y, 0), axis=1, keep_dims=True)
    ratio = x // y - ((x % y != 0) & ((x < 0) != (y < 0)))
    tl.store(out_0_ptr + row * out_0_stride_0 + col * out_0_stride_1, ratio, mask=mask)
    remainder = x % y + tl.where((x % y != 0) & ((x < 0) != (y < 0)), y, 0)
    tl.store(out_1_ptr + row * out_1_stride_0 + col * out_1_stride_1, remainder, mask=mask)
    tl.store(
        out_2_ptr + row * out_2_stride_0 + col * out_2_stride_1, tl.where(x > y, x, y), mask=mask
    )
    tl.store(out_3_ptr + row, total, mask=row_mask)


@triton.jit
def _whole_numbers_long_kernel(
    x_ptr, y_ptr, out_0_ptr, out_1_ptr, out_2_ptr, out_3_ptr, x_stride_0, x_stride_1, y_stride_0,
    y_stride_1, out_0_stride_0, out_0_stride_1, out_1_stride_0, out_1_stride_1, out_2_stride_0,
    out_2_stride_1, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows: 1 pass over the row, COLS places at a time."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    total_block = tl.full((ROWS, COLS), 0, tl.int64)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0)
        y = tl.load(y_ptr + row * y_stride_0 + col * y_stride_1, mask=mask, other=0)
        total_block += tl.where(col_mask, x * y, 0)
        ratio = x // y - ((x % y != 0) & ((x < 0) != (y < 0)))
        tl.store(out_0_ptr + row * out_0_stride_0 + col * out_0_stride_1, ratio, mask=mask)
        remainder = x % y + tl.where((x % y != 0) & ((x < 0) != (y < 0)), y, 0)
        tl.store(out_1_ptr + row * out_1_stride_0 + col * out_1_stride_1, remainder, mask=mask)
        tl.store(
            out_2_ptr + row * out_2_stride_0 + col * out_2_stride_1, tl.where(x > y, x, y),
            mask=mask,
        )
    total = tl.sum(total_block, axis=1, keep_dims=True)
    tl.store(out_3_ptr + row, total, mask=row_mask)


def whole_numbers(x, y):
    out_0 = torch.empty_like(x, dtype=torch.int64)
    out_1 = torch.empty_like(x, dtype=torch.int64)
    out_2 = torch.empty_like(x, dtype=torch.int64)
    out_3 = torch.empty((x.shape[0],), dtype=torch.int64, device=x.device)
    with torch.cuda.device_of(x):
        n_rows = x.shape[0]
        n_cols = x.shape[1]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _whole_numbers_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _whole_numbers_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            x, y, out_0, out_1, out_2, out_3, x.stride(0), x.stride(1), y.stride(0), y.stride(1),
            out_0.stride(0), out_0.stride(1), out_1.stride(0), out_1.stride(1), out_2.stride(0),
            out_2.stride(1), n_rows, n_cols, ROWS=rows, COLS=cols,
            num_warps=max(1, min(16, rows * cols // 512)),
        )
    return out_0, out_1, out_2, out_3
