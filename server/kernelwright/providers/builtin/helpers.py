"""Combine functions that kernels share. Reductions go through them where Triton's own would lose a NaN."""

TEXT: dict[str, list[str]] = {
    "_maximum": [
        "@triton.jit",
        "def _maximum(a, b):",
        "    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    ],
    "_minimum": [
        "@triton.jit",
        "def _minimum(a, b):",
        "    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    ],
    "_product": ["@triton.jit", "def _product(a, b):", "    return a * b"],
    "_first_largest": [
        "@triton.jit",
        "def _first_largest(a, a_place, b, b_place):",
        "    # NaN counts as the largest; the first of equal elements wins",
        "    a_first = (a == b) | ((a != a) & (b != b))",
        "    keep = (a > b) | ((a != a) & (b == b)) | (a_first & (a_place < b_place))",
        "    return tl.where(keep, a, b), tl.where(keep, a_place, b_place)",
    ],
    "_first_smallest": [
        "@triton.jit",
        "def _first_smallest(a, a_place, b, b_place):",
        "    # NaN counts as the smallest; the first of equal elements wins",
        "    a_first = (a == b) | ((a != a) & (b != b))",
        "    keep = (a < b) | ((a != a) & (b == b)) | (a_first & (a_place < b_place))",
        "    return tl.where(keep, a, b), tl.where(keep, a_place, b_place)",
    ],
}
