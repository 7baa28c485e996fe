import torch
import triton
import triton.language as tl


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _cross_entropy_1_kernel(
    logits_ptr, amax_scratch_ptr, sum_1_scratch_ptr, logits_stride_0, logits_stride_1, n_rows,
    n_cols, ROWS: tl.constexpr, COLS: tl.constexpr,
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
    total = tl.sum(tl.where(col_mask, tl.exp(logits - amax), 0.0), axis=1, keep_dims=True)
    tl.store(amax_scratch_ptr + row, amax, mask=row_mask)
    tl.store(sum_1_scratch_ptr + row, total, mask=row_mask)


@triton.jit
def _cross_entropy_1_long_kernel(
    logits_ptr, amax_scratch_ptr, sum_1_scratch_ptr, logits_stride_0, logits_stride_1, n_rows,
    n_cols, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows: 2 passes over the row, COLS places at a time."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    amax_block = tl.full((ROWS, COLS), float("-inf"), tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        logits = tl.load(
            logits_ptr + row * logits_stride_0 + col * logits_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        amax_block = tl.maximum(
            amax_block, tl.where(col_mask, logits, float("-inf")), propagate_nan=tl.PropagateNan.ALL
        )
    amax = tl.reduce(amax_block, 1, _maximum, keep_dims=True)
    total_block = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        logits = tl.load(
            logits_ptr + row * logits_stride_0 + col * logits_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        total_block += tl.where(col_mask, tl.exp(logits - amax), 0.0)
    total = tl.sum(total_block, axis=1, keep_dims=True)
    tl.store(amax_scratch_ptr + row, amax, mask=row_mask)
    tl.store(sum_1_scratch_ptr + row, total, mask=row_mask)


@triton.jit
def _cross_entropy_2_partial_kernel(
    labels_ptr, logits_ptr, amax_scratch_ptr, sum_1_scratch_ptr, partial_0_ptr, partial_1_ptr,
    labels_stride_0, logits_stride_0, logits_stride_1, n_cols, logits_size_1, COLS: tl.constexpr,
):
    """Every program reduces its share of the elements to one partial result."""
    pid = tl.program_id(0)
    constant = -100
    total_block = tl.full((COLS,), 0, tl.int64)
    total_block_2 = tl.full((COLS,), 0.0, tl.float32)
    for start in range(pid * COLS, n_cols, tl.num_programs(0) * COLS):
        col = (start + tl.arange(0, COLS)).to(tl.int64)
        col_mask = col < n_cols
        labels = tl.load(labels_ptr + col * labels_stride_0, mask=col_mask, other=0)
        ne = labels != constant
        total_block += tl.where(col_mask, ne.to(tl.int64), 0)
        chosen = tl.where(ne, labels, 0)
        logits = tl.load(
            logits_ptr + col * logits_stride_0 + chosen * logits_stride_1,
            mask=col_mask & (chosen >= 0) & (chosen < logits_size_1), other=0.0,
        ).to(tl.float32)
        amax_scratch = tl.load(amax_scratch_ptr + col, mask=col_mask, other=0.0)
        sum_1_scratch = tl.load(sum_1_scratch_ptr + col, mask=col_mask, other=0.0)
        gap = logits - amax_scratch - tl.log(sum_1_scratch)
        total_block_2 += tl.where(col_mask, tl.where(ne, -gap, 0.0), 0.0)
    total = tl.sum(total_block, axis=0)
    total_2 = tl.sum(total_block_2, axis=0)
    tl.store(partial_0_ptr + pid, total)
    tl.store(partial_1_ptr + pid, total_2)


@triton.jit
def _cross_entropy_2_kernel(out_ptr, partial_0_ptr, partial_1_ptr, n_parts, PARTS: tl.constexpr):
    """One program combines the partial results."""
    part = tl.arange(0, PARTS)
    total_parts = tl.load(partial_0_ptr + part, mask=part < n_parts, other=0)
    total = tl.sum(total_parts, axis=0)
    total_parts_2 = tl.load(partial_1_ptr + part, mask=part < n_parts, other=0.0)
    total_2 = tl.sum(total_parts_2, axis=0)
    tl.store(out_ptr, total_2 / total.to(tl.float32))


def cross_entropy(logits, labels):
    out = torch.empty((), dtype=torch.float32, device=logits.device)
    amax_scratch = torch.empty(labels.shape, dtype=torch.float32, device=logits.device)
    sum_1_scratch = torch.empty(labels.shape, dtype=torch.float32, device=logits.device)
    with torch.cuda.device_of(logits):
        n_rows = logits.shape[0]
        n_cols = logits.shape[1]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _cross_entropy_1_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _cross_entropy_1_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            logits, amax_scratch, sum_1_scratch, logits.stride(0), logits.stride(1), n_rows, n_cols,
            ROWS=rows, COLS=cols, num_warps=max(1, min(16, rows * cols // 512)),
        )
        n_cols = logits.shape[0]
        n_parts = max(1, min(1024, triton.cdiv(n_cols, 8192)))
        partial_0 = torch.empty(n_parts, dtype=torch.int64, device=logits.device)
        partial_1 = torch.empty(n_parts, dtype=torch.float32, device=logits.device)
        _cross_entropy_2_partial_kernel[(n_parts,)](
            labels, logits, amax_scratch, sum_1_scratch, partial_0, partial_1, labels.stride(0),
            logits.stride(0), logits.stride(1), n_cols, logits.shape[1], COLS=2048, num_warps=8,
        )
        _cross_entropy_2_kernel[(1,)](
            out, partial_0, partial_1, n_parts, PARTS=triton.next_power_of_2(n_parts)
        )
    return out
