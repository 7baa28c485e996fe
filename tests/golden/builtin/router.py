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
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _router_kernel(
    logits_ptr, out_0_ptr, places_ptr, logits_stride_0, logits_stride_1, n_rows, n_cols,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    logits = tl.load(
        logits_ptr + row * logits_stride_0 + col * logits_stride_1, mask=mask, other=0.0
    ).to(tl.float32)
    amax = tl.reduce(tl.where(col_mask, logits, float("-inf")), 1, _maximum, keep_dims=True)
    exp = tl.exp(logits - amax)
    total = tl.sum(tl.where(col_mask, exp, 0.0), axis=1, keep_dims=True)
    p = exp / total
    topk_left = tl.where(col_mask, p, float("-inf"))
    topk_places = tl.broadcast_to(col, (ROWS, COLS))
    topk_value_0, topk_place_0 = tl.reduce(
        (topk_left, topk_places), 1, _first_largest, keep_dims=True
    )
    topk_left = tl.where(topk_places == topk_place_0, float("-inf"), topk_left)
    topk_places = tl.where(topk_places == topk_place_0, 9223372036854775807, topk_places)
    topk_value_1, topk_place_1 = tl.reduce(
        (topk_left, topk_places), 1, _first_largest, keep_dims=True
    )
    total_2 = topk_value_0 + topk_value_1
    tl.store(out_0_ptr + 2 * row, topk_value_0 / total_2, mask=row_mask)
    tl.store(out_0_ptr + 2 * row + 1, topk_value_1 / total_2, mask=row_mask)
    tl.store(places_ptr + 2 * row, topk_place_0, mask=row_mask)
    tl.store(places_ptr + 2 * row + 1, topk_place_1, mask=row_mask)


def router(logits):
    out_0 = torch.empty((logits.shape[0], 2), dtype=torch.float32, device=logits.device)
    places = torch.empty((logits.shape[0], 2), dtype=torch.int64, device=logits.device)
    with torch.cuda.device_of(logits):
        n_rows = logits.shape[0]
        n_cols = logits.shape[1]
        cols = triton.next_power_of_2(max(n_cols, 1))
        rows = max(1, 1024 // cols)
        _router_kernel[(triton.cdiv(n_rows, rows),)](
            logits, out_0, places, logits.stride(0), logits.stride(1), n_rows, n_cols, ROWS=rows,
            COLS=cols, num_warps=max(1, min(16, rows * cols // 512)),
        )
    return out_0, places
