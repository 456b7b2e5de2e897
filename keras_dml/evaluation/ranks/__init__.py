"""Exact ranks of relevant images: nothing is sorted, float64 decides.

The rank of a relevant image is one more than the number of gallery images
that precede it: those with a higher score and, among equal scores, those that
stand earlier in the gallery. All retrieval metrics are functions of these
ranks. To find them,

1. `relevance`: labels, rows and groups say which gallery images are relevant
   to which query (`Relevance`). Their exact scores are computed, in float64,
   one pair at a time (`Scores.exact`), and sorted for each query
   (`RankedPositives`).
2. `search`: queries and gallery are cut into blocks, and blocks multiplied in
   float32, several threads at a time, one product each. Where queries and
   gallery are the same images, a block serves both sides. A block of scores
   and the bound on their error is a `Tile`.
3. `counting`: a tile is compared to the scores of its queries' positives, and
   images that precede any are noted at the best one that they precede
   (`Counter`). Where a score is nearer to a positive's than its error bound,
   float32 cannot say who precedes whom: such pairs are computed again, in
   float64. If they are many, the block is multiplied in float64 first, and
   `Scores.exact` decides what is left.
4. `ranked_positives`: ranks are sums of what was noted; the docstring there
   has an example with numbers.

So no rank depends on the memory given, on threads, on the matrix library, or
on how it rounds: the float32 product only rules out. Memory is that of some
tiles; N×N scores are never held, nor sorted.

Metrics say up to which rank they need exact ones (`Limits`), recall@10 for
instance of the first positive up to 10. Positives that are certainly beyond
no longer matter. Of a query, only images that reach the worst positive that
does matter (its cutoff) are looked at, and a query without such a positive is
left out of the products that follow. That is why the first blocks of the
gallery are small.

Example, two queries against four images, labels 0 0 1 1, dot products of
`[[1, 0], [0, 1]]` with `[[.9, 0], [.2, .1], [.6, .3], [0, .8]]`:

    query  label  scores          positives       precede them   ranks
    0      0      .9 .2 .6 0      rows 0, 1       none; row 2    1, 3
    1      1      0 .1 .3 .8      rows 3, 2       none; none     1, 2
"""
