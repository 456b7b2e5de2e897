"""Deep compositional metric learning (DCML, Zheng et al., 2021)."""
