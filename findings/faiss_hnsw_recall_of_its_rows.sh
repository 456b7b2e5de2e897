#!/usr/bin/env bash
# faiss-cpu 1.15.1: vectors of an HNSW index are bad queries to measure its
# recall with, even if each is left out of its own results. A vector's links are
# the nearest that were found when it was added, so a search that reaches it has
# most of its neighbors at once. New vectors of the same distribution miss more
# than twice as many.
#
# Output seen (20,000 normal vectors of 16 dimensions, 500 queries, efSearch 20,
# nprobe 4; recall against exact search):
#     HNSW16, queries are its rows: recall@10 0.945
#     HNSW16, queries are new: recall@10 0.875
#     IVF64,Flat, queries are its rows: recall@10 0.615
#     IVF64,Flat, queries are new: recall@10 0.619
#
# Leave rows out of the graph until they have been searched for, or use queries
# of your own. Lists have no such difference.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1 numpy==2.4.6

cat >"$folder/program.py" <<'PROGRAM'
import faiss
import numpy as np

COUNT, DIM, K = 20_000, 16, 10
faiss.omp_set_num_threads(1)  # Threads build another graph each time.
rng = np.random.default_rng(0)
x = rng.normal(size=(COUNT, DIM)).astype("float32")
new = rng.normal(size=(500, DIM)).astype("float32")
rows = np.arange(500)

exact = faiss.IndexFlatL2(DIM)
exact.add(x)
for kind in ("HNSW16", "IVF64,Flat"):
    index = faiss.index_factory(DIM, kind)
    index.train(x)
    index.add(x)
    if kind == "HNSW16":
        index.hnsw.efSearch = 20
    else:
        index.nprobe = 4
    missed = {}
    for name, queries, own in (("its rows", x[:500], rows), ("new", new, None)):
        lists = []
        for source in (exact, index):
            found = source.search(queries, K + 1)[1]
            if own is None:
                lists.append([row[:K] for row in found])
            else:
                lists.append(
                    [row[row != i][:K] for row, i in zip(found, own)]
                )
        recall = np.mean([np.isin(a, b).mean() for a, b in zip(*lists)])
        missed[name] = 1 - recall
        print(f"{kind}, queries are {name}: recall@10 {recall:.3f}")
    ratio = missed["new"] / missed["its rows"]
    if (ratio > 1.8) != (kind == "HNSW16"):
        raise SystemExit(f"changed: {kind} misses {ratio:.1f} times as many")
PROGRAM
"$folder/venv/bin/python" "$folder/program.py"
