#!/usr/bin/env bash
# faiss-cpu 1.15.1: range_search of an IVF index of RaBitQ codes in blocks for
# FastScan ("IVF16,RaBitQfs") does not agree with its own search. By inner
# product it returns nothing, by L2 every vector, whatever the radius; the same
# codes without blocks ("IVF16,RaBitQ") return what search finds within it.
#
# Output seen (three queries, 1,000 vectors of 32 dimensions, all lists probed):
#     IVF16,RaBitQ, inner product above 20: search 9, range_search 9
#     IVF16,RaBitQ, L2 below 30: search 51, range_search 51
#     IVF16,RaBitQfs, inner product above 20: search 10, range_search 0
#     IVF16,RaBitQfs, L2 below 30: search 50, range_search 3000
#
# Use the kind without blocks, or compare the vectors themselves.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1 numpy==2.4.6

cat >"$folder/program.py" <<'PROGRAM'
import faiss
import numpy as np

x = np.random.default_rng(0).normal(size=(1000, 32)).astype("float32")
queries = x[:3]
CASES = [
    (faiss.METRIC_INNER_PRODUCT, "inner product above", 20.0),
    (faiss.METRIC_L2, "L2 below", 30.0),
]
for kind in ("IVF16,RaBitQ", "IVF16,RaBitQfs"):
    for metric, name, radius in CASES:
        index = faiss.index_factory(32, kind, metric)
        index.train(x)
        index.add(x)
        index.nprobe = 16
        scores, _ = index.search(queries, len(x))
        is_inner = metric == faiss.METRIC_INNER_PRODUCT
        inside = scores > radius if is_inner else scores < radius
        found = int(index.range_search(queries, radius)[0][-1])
        expected = int(inside.sum())
        print(
            f"{kind}, {name} {radius:.0f}: search {expected}, "
            f"range_search {found}"
        )
        if not kind.endswith("fs"):
            assert found == expected
        elif found != (0 if is_inner else 3 * len(x)):
            raise SystemExit("changed")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py"
