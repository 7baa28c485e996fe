import torch
import triton
import triton.language as tl


@triton.jit
def _first_largest(a, a_place, b, b_place):
    # NaN counts as the largest; the first of equal elements wins
    a_first = (a == b) | ((a != a) & (b != b))
    keep = (a > b) | ((a != a) & (b == b)) | (a_first & (a_place < b_place))
    return tl.where(keep, a, b), tl.where(keep, a_place, b_place)


@triton.jit
def _minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _extremes_kernel(
    x_ptr, argmax_ptr, amin_ptr, clamp_ptr, out_3_ptr, x_stride_0, x_stride_1, clamp_stride_0,
    clamp_stride_1, out_3_stride_0, out_3_stride_1, n_rows, n_cols, ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    x = tl.load(x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0).to(tl.float32)
    _, argmax = tl.reduce(
        (tl.where(col_mask, x, float("-inf")), tl.broadcast_to(col, (ROWS, COLS))), 1,
        _first_largest, keep_dims=True,
    )
    amin = tl.reduce(tl.where(col_mask, x, float("inf")), 1, _minimum, keep_dims=True)
    tl.store(argmax_ptr + row, argmax, mask=row_mask)
    tl.store(amin_ptr + row, amin, mask=row_mask)
    clamp = tl.maximum(x, -1.0, propagate_nan=tl.PropagateNan.ALL)
    clamp_2 = tl.minimum(clamp, 1.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(clamp_ptr + row * clamp_stride_0 + col * clamp_stride_1, clamp_2, mask=mask)
    maximum = tl.maximum(x, -x, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_3_ptr + row * out_3_stride_0 + col * out_3_stride_1, maximum, mask=mask)


@triton.jit
def _extremes_long_kernel(
    x_ptr, argmax_ptr, amin_ptr, clamp_ptr, out_3_ptr, x_stride_0, x_stride_1, clamp_stride_0,
    clamp_stride_1, out_3_stride_0, out_3_stride_1, n_rows, n_cols, ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS rows: 1 pass over the row, COLS places at a time."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    constant = -1.0
    argmax_block = tl.full((ROWS, COLS), float("-inf"), tl.float32)
    argmax_places = tl.full((ROWS, COLS), 9223372036854775807, tl.int64)
    amin_block = tl.full((ROWS, COLS), float("inf"), tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        x = tl.load(
            x_ptr + row * x_stride_0 + col * x_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        argmax_block, argmax_places = _first_largest(
            argmax_block, argmax_places, tl.where(col_mask, x, float("-inf")),
            tl.broadcast_to(col, (ROWS, COLS)),
        )
        amin_block = tl.minimum(
            amin_block, tl.where(col_mask, x, float("inf")), propagate_nan=tl.PropagateNan.ALL
        )
        clamp = tl.maximum(x, constant, propagate_nan=tl.PropagateNan.ALL)
        clamp_2 = tl.minimum(clamp, 1.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(clamp_ptr + row * clamp_stride_0 + col * clamp_stride_1, clamp_2, mask=mask)
        maximum = tl.maximum(x, -x, propagate_nan=tl.PropagateNan.ALL)
        tl.store(out_3_ptr + row * out_3_stride_0 + col * out_3_stride_1, maximum, mask=mask)
    _, argmax = tl.reduce((argmax_block, argmax_places), 1, _first_largest, keep_dims=True)
    amin = tl.reduce(amin_block, 1, _minimum, keep_dims=True)
    tl.store(argmax_ptr + row, argmax, mask=row_mask)
    tl.store(amin_ptr + row, amin, mask=row_mask)


def extremes(x):
    argmax = torch.empty((x.shape[0],), dtype=torch.int64, device=x.device)
    amin = torch.empty((x.shape[0],), dtype=x.dtype, device=x.device)
    clamp = torch.empty_like(x)
    out_3 = torch.empty_like(x)
    with torch.cuda.device_of(x):
        n_rows = x.shape[0]
        n_cols = x.shape[1]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _extremes_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _extremes_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            x, argmax, amin, clamp, out_3, x.stride(0), x.stride(1), clamp.stride(0),
            clamp.stride(1), out_3.stride(0), out_3.stride(1), n_rows, n_cols, ROWS=rows, COLS=cols,
            num_warps=max(1, min(16, rows * cols // 512)),
        )
    return argmax, amin, clamp, out_3
