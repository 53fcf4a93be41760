"""Correctness of many random products: `python benchmarks/sweep.py --cases 3000 --seed 0 --out FILE.json`.

Protocol: random sizes (log-uniform up to 4,096, edges of tiles, a quarter with a long K, a few large ones), every pair
of element types, both products, every layout and output type, leading axes, unaligned views, and the options of a call
(bias, scales, activations and others; the record counts them). Weights are 2:4 (f32: 1:2) or, for the share
`--vectors`, N:M@L of f16, bf16 and f32, M up to 256 and L up to 256. They are pruned, or built from indices: random
ones, the same in all windows, or different ones in each. Each dense operand and each output is a view into a buffer of
NaN, or of a value that is no result. The reference is torch's float64 product on the GPU with the same options. Up to
half of the cases hold integers with exact results: every element equals the reference, rounded once. Vectors of f32
also hold integers that tf32 would round. The other cases are compared by element with the bound of
louver.library.numerics and the f32 rounding of the options' steps. The buffer around the output must not change. Groups
of cases share kernels. `--target sm_80` runs the kernels of another target on this GPU, with that target's own limit of
shared memory, for the types that it multiplies by one instruction. A pattern without a kernel counts as refused, with the message; any other refusal is wrong. Exit
status 1 if any case is wrong.
"""

from __future__ import annotations

from louver.isa.targets import TARGETS
from louver.measure.machine import CannotMeasureError, host_header, require_torch
from louver.measure.record import write_record
from random_products.cases import VECTORS
from random_products.pool import sweep
from script import arguments


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="processes; default: one a core, at most 15")
    parser.add_argument(
        "--vectors", type=float, default=VECTORS, help="share of vectors N:M@L, 0 to 1; default: a third"
    )
    parser.add_argument("--target", help="targets whose kernels run, separated by commas; default: the GPU's own")
    args = parser.parse_args()
    targets = tuple(args.target.split(",")) if args.target else (None,)
    for each in targets:
        if each is not None and each not in TARGETS:
            parser.error(f"--target is one of {', '.join(TARGETS)}, got {each}")
    if not 0 <= args.vectors <= 1:
        parser.error(f"--vectors is a share from 0 to 1, got {args.vectors}")
    try:
        facts = host_header(require_torch())
    except CannotMeasureError as error:
        parser.error(str(error))
    # Other targets have no kernels of vectors.
    vectors = args.vectors if args.target is None else 0.0
    found = sweep(args.cases, args.seed, lambda line: print(line, flush=True), args.workers, vectors, targets)
    record = {
        **facts,
        "protocol": " ".join(str(__doc__).split()),
        "seed": args.seed,
        "vectors": vectors,
        "target": args.target,
        **found.to_json(),
    }
    if args.out is not None:
        write_record(args.out, record)
    print(
        f"{record['cases']} products, {record['wrong']} wrong, {sum(record['refused'].values())} refused, worst error {record['worst_ratio_to_bound']:.3g} of its bound; "
        f"{found.kernels} kernels, {found.seconds:.0f} s"
    )
    return 1 if found.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
