"""Exact ranks of relevant images: nothing is sorted, float64 decides.

From a query's scores for the images that it may find, this computes

    order = np.argsort(-scores, kind="stable")
    ranks = 1 + np.flatnonzero(is_relevant[order])

exactly, in blocks. The rank of an image is thus one more than the number of
images that precede it: those with a higher score and, if scores are equal,
those earlier in the gallery. All retrieval metrics are functions of these
ranks, which are found as follows:

1. `relevance`: labels, rows and groups determine which gallery images are
   relevant to which query (`Relevance`). Their exact scores are computed in
   float64, one pair at a time (`Scores.exact`), and sorted for each query
   (`positives.RankedPositives`).
2. `search`: queries and gallery are cut into blocks, and blocks are multiplied
   in float32 by several threads, one product each. If queries and gallery are
   the same images, a block serves both sides. A block of scores with the bound
   on their error is a `Tile`.
3. `tiles`: a tile is compared with the scores of its queries' positives,
   and images that precede any are recorded at the best one that they precede
   (`Counter`). If a score is closer to a positive's than its error bound,
   float32 cannot decide which comes first: the pair is computed again in
   float64. If there are many, the block is multiplied in float64 first.
4. `positives`: ranks are sums of the recorded counts; its docstring has an
   example with numbers.

Thus no rank depends on memory, threads, the matrix library or its rounding: the
float32 product only rules images out. Only a few tiles are in memory at a time.

Metrics state up to which rank they require exact ones (`Limits`), for example
recall@10 up to 10 for the first positive. Positives that are certainly beyond
no longer matter. A query considers only images that reach its cutoff, the worst
positive that still matters; without one, it leaves the remaining products. That
is why the first blocks of the gallery are small.

Example, two queries against four images, labels 0 0 1 1, dot products of
`[[1, 0], [0, 1]]` with `[[.9, 0], [.2, .1], [.6, .3], [0, .8]]`:

    query  label  scores          positives       precede them   ranks
    0      0      .9 .2 .6 0      rows 0, 1       none; row 2    1, 3
    1      1      0 .1 .3 .8      rows 3, 2       none; none     1, 2
"""
