import torch
import triton
import triton.language as tl


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _kl_distill_1_kernel(
    student_ptr, teacher_ptr, sum_3_scratch_ptr, student_stride_0, student_stride_1,
    teacher_stride_0, teacher_stride_1, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows and holds them in registers."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    col_mask = col < n_cols
    mask = row_mask & col_mask
    student = tl.load(
        student_ptr + row * student_stride_0 + col * student_stride_1, mask=mask, other=0.0
    ).to(tl.float32)
    amax = tl.reduce(tl.where(col_mask, student, float("-inf")), 1, _maximum, keep_dims=True)
    gap = student - amax
    total = tl.sum(tl.where(col_mask, tl.exp(gap), 0.0), axis=1, keep_dims=True)
    teacher = tl.load(
        teacher_ptr + row * teacher_stride_0 + col * teacher_stride_1, mask=mask, other=0.0
    ).to(tl.float32)
    amax_2 = tl.reduce(tl.where(col_mask, teacher, float("-inf")), 1, _maximum, keep_dims=True)
    gap_2 = teacher - amax_2
    total_2 = tl.sum(tl.where(col_mask, tl.exp(gap_2), 0.0), axis=1, keep_dims=True)
    gap_3 = gap_2 - tl.log(total_2)
    scaled = tl.exp(gap_3) * (gap_3 - (gap - tl.log(total)))
    total_3 = tl.sum(tl.where(col_mask, scaled, 0.0), axis=1, keep_dims=True)
    tl.store(sum_3_scratch_ptr + row, total_3, mask=row_mask)


@triton.jit
def _kl_distill_1_long_kernel(
    student_ptr, teacher_ptr, sum_3_scratch_ptr, student_stride_0, student_stride_1,
    teacher_stride_0, teacher_stride_1, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr,
):
    """A program owns ROWS rows: 3 passes over the row, COLS places at a time."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    amax_block = tl.full((ROWS, COLS), float("-inf"), tl.float32)
    amax_block_2 = tl.full((ROWS, COLS), float("-inf"), tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        student = tl.load(
            student_ptr + row * student_stride_0 + col * student_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        amax_block = tl.maximum(
            amax_block, tl.where(col_mask, student, float("-inf")),
            propagate_nan=tl.PropagateNan.ALL,
        )
        teacher = tl.load(
            teacher_ptr + row * teacher_stride_0 + col * teacher_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        amax_block_2 = tl.maximum(
            amax_block_2, tl.where(col_mask, teacher, float("-inf")),
            propagate_nan=tl.PropagateNan.ALL,
        )
    amax = tl.reduce(amax_block, 1, _maximum, keep_dims=True)
    amax_2 = tl.reduce(amax_block_2, 1, _maximum, keep_dims=True)
    total_block = tl.full((ROWS, COLS), 0.0, tl.float32)
    total_block_2 = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        student = tl.load(
            student_ptr + row * student_stride_0 + col * student_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        gap = student - amax
        total_block += tl.where(col_mask, tl.exp(gap), 0.0)
        teacher = tl.load(
            teacher_ptr + row * teacher_stride_0 + col * teacher_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        gap_2 = teacher - amax_2
        total_block_2 += tl.where(col_mask, tl.exp(gap_2), 0.0)
    total = tl.sum(total_block, axis=1, keep_dims=True)
    total_2 = tl.sum(total_block_2, axis=1, keep_dims=True)
    log = tl.log(total_2)
    log_2 = tl.log(total)
    total_block_3 = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        col = (start + tl.arange(0, COLS)[None, :]).to(tl.int64)
        col_mask = col < n_cols
        mask = row_mask & col_mask
        teacher = tl.load(
            teacher_ptr + row * teacher_stride_0 + col * teacher_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        gap = teacher - amax_2
        gap_2 = gap - log
        student = tl.load(
            student_ptr + row * student_stride_0 + col * student_stride_1, mask=mask, other=0.0
        ).to(tl.float32)
        gap_3 = student - amax
        total_block_3 += tl.where(col_mask, tl.exp(gap_2) * (gap_2 - (gap_3 - log_2)), 0.0)
    total_3 = tl.sum(total_block_3, axis=1, keep_dims=True)
    tl.store(sum_3_scratch_ptr + row, total_3, mask=row_mask)


@triton.jit
def _kl_distill_2_partial_kernel(sum_3_scratch_ptr, partial_ptr, n_cols, COLS: tl.constexpr):
    """Every program reduces its share of the elements to one partial result."""
    pid = tl.program_id(0)
    total_block = tl.full((COLS,), 0.0, tl.float32)
    for start in range(pid * COLS, n_cols, tl.num_programs(0) * COLS):
        col = (start + tl.arange(0, COLS)).to(tl.int64)
        col_mask = col < n_cols
        sum_3_scratch = tl.load(sum_3_scratch_ptr + col, mask=col_mask, other=0.0)
        total_block += sum_3_scratch
    total = tl.sum(total_block, axis=0)
    tl.store(partial_ptr + pid, total)


@triton.jit
def _kl_distill_2_kernel(out_ptr, partial_ptr, n_cols, n_parts, PARTS: tl.constexpr):
    """One program combines the partial results."""
    part = tl.arange(0, PARTS)
    total_parts = tl.load(partial_ptr + part, mask=part < n_parts, other=0.0)
    total = tl.sum(total_parts, axis=0)
    tl.store(out_ptr, total / n_cols)


def kl_distill(student, teacher):
    out = torch.empty((), dtype=torch.float32, device=student.device)
    sum_3_scratch = torch.empty((student.shape[0],), dtype=torch.float32, device=student.device)
    with torch.cuda.device_of(student):
        n_rows = student.shape[0]
        n_cols = student.shape[1]
        if n_cols <= 16384:  # the row fits in registers
            kernel = _kl_distill_1_kernel
            cols = triton.next_power_of_2(max(n_cols, 1))
            rows = max(1, 1024 // cols)
        else:
            kernel = _kl_distill_1_long_kernel
            rows, cols = 1, 2048
        kernel[(triton.cdiv(n_rows, rows),)](
            student, teacher, sum_3_scratch, student.stride(0), student.stride(1),
            teacher.stride(0), teacher.stride(1), n_rows, n_cols, ROWS=rows, COLS=cols,
            num_warps=max(1, min(16, rows * cols // 512)),
        )
        n_cols = student.shape[0]
        n_parts = max(1, min(1024, triton.cdiv(n_cols, 8192)))
        partial = torch.empty(n_parts, dtype=torch.float32, device=student.device)
        _kl_distill_2_partial_kernel[(n_parts,)](
            sum_3_scratch, partial, n_cols, COLS=2048, num_warps=8
        )
        _kl_distill_2_kernel[(1,)](
            out, partial, n_cols, n_parts, PARTS=triton.next_power_of_2(n_parts)
        )
    return out
