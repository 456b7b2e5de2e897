"""HIST: class distributions, and a hypergraph of the batch."""

from typing import Any

import keras
from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.proxy_loss import ProxyLoss, class_mask, cross_entropy
from keras_dml.losses.variables import add_loss_variable, take_rows
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import Count, Positive, Tensor


@LOSSES.register(
    "hist",
    examples={"tau": 9.0, "weight": 0.5, "hidden_dim": 7, "class_share": 1.0},
)
class HISTLoss(ProxyLoss):
    r"""HIST: Gaussian classes, and classification by a hypergraph of the batch.

    For an example $x$ of class $y$, where each class $c$ is a Gaussian with
    learned mean $\mu_c$ and diagonal covariance $\Sigma_c$,

    $$
    \ell = -\log \frac{e^{-\tau d_y^2}}{\sum_c e^{-\tau d_c^2}} +
    \lambda \, \ell_{CE} , \qquad
    d_c^2 = (x - \mu_c)^\top \Sigma_c^{-1} (x - \mu_c) .
    $$

    Each class in the batch is a hyperedge, in which its own examples have the
    weight 1 and others $e^{-\alpha d_c^2}$. A two-layer network passes the
    embeddings along the hyperedges, and $\ell_{CE}$ is its cross entropy. In
    this way, examples that are easily confused with another class are
    distinguished in the context of the batch.

    Terms are examples; the two parts are reduced separately. The means are the
    proxies. The network is part of the loss and is not needed after training.

    When to use it:
        A moderate number of classes that are easily confused; with
        learning rates of its own, see Requirements.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        num_classes: As for `ProxyLoss`.
        tau: τ.
        alpha: α. With larger values, fewer examples join the hyperedges of
            other classes.
        weight: λ.
        hidden_dim: Number of units in the network's hidden layer.
        reduction, **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If an argument is out of range.

    Requirements:
        The authors use learning rates about 1,000 times higher for the proxies
        and log-variances, and 10 times higher for the network, than for the
        embedding: `rate_multipliers={"/loss/(proxies|log_variances)": 1000,
        "/loss/": 10}`.

    Deviations:
        - Defaults follow the authors' code; the paper tunes τ and α for each
          data set.
        - The network sees the same embeddings as the loss, of unit length if
          `normalize`; the authors' model uses layer normalization, and unit
          vectors only for distances.
        - Batch normalization always uses the statistics of the batch, because
          the network is only used in training.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `HISTLoss(num_classes=100, tau=16.0)`

    Reference:
        Lim et al., "Hypergraph-Induced Semantic Tuplet Loss for Deep Metric
        Learning", CVPR 2022, Sec. 3.
    """

    can_sample = False

    def __init__(
        self,
        num_classes: int,
        tau: Positive = 32.0,
        alpha: Positive = 0.9,
        weight: float = 1.0,
        hidden_dim: Count = 512,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.tau = tau
        self.alpha = alpha
        self.hidden_dim = hidden_dim
        self.weight = weight

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        super().build(owner, embedding_dim)
        classes, hidden = self.num_classes, self.hidden_dim
        self.log_variances, self.first, self.second, *rest = (
            add_loss_variable(owner, name, shape, initializer)
            for name, shape, initializer in (
                ("log_variances", (classes, embedding_dim), "he_normal"),
                ("hidden_kernel", (embedding_dim, hidden), _uniform()),
                ("output_kernel", (hidden, classes), _uniform()),
                ("hidden_bias", (hidden,), "zeros"),
                ("hidden_gamma", (hidden,), "ones"),
                ("hidden_beta", (hidden,), "zeros"),
                ("output_bias", (classes,), "zeros"),
            )
        )
        self.first_bias, self.gamma, self.beta, self.second_bias = rest

    def values(
        self, labels: Tensor, embeddings: Tensor, proxies: Tensor
    ) -> Tensor:
        targets = class_mask(labels, proxies.shape[0])
        x, means = l2_normalize(embeddings), l2_normalize(proxies)
        precision = ops.exp(-ops.relu6(self.log_variances))
        # (B, C) squared Mahalanobis distances; rounding makes some negative.
        distances = ops.relu(
            ops.matmul(ops.square(x), ops.transpose(precision))
            - 2.0 * ops.matmul(x, ops.transpose(means * precision))
            + ops.sum(ops.square(means) * precision, axis=1)
        )
        likelihood = cross_entropy(-self.tau * distances, targets)
        # Column j is the distance to the class of example j: (B, B).
        to_classes = ops.transpose(take_rows(ops.transpose(distances), labels))
        graph = self._propagation(labels, to_classes)
        hidden = ops.matmul(embeddings, self.first) + self.first_bias
        hidden = ops.matmul(graph, hidden)
        mean, variance = ops.moments(hidden, axes=0)
        scale = self.gamma * ops.rsqrt(variance + 1e-5)
        hidden = ops.leaky_relu((hidden - mean) * scale + self.beta, 0.1)
        outputs = ops.matmul(hidden, self.second) + self.second_bias
        semantic = cross_entropy(ops.matmul(graph, outputs), targets)
        return self.reduce(likelihood) + self.weight * self.reduce(semantic)

    def _propagation(self, labels: Tensor, distances: Tensor) -> Tensor:
        """(B, B): D_v^(−½) H D_e^(−1) Hᵀ D_v^(−½) of the hypergraph.

        A hyperedge is a class. Here it stands in the columns of all of its
        examples, and each column counts for one of their number.
        """
        same = ops.equal(labels[:, None], labels[None, :])
        incidence = ops.where(same, 1.0, ops.exp(-self.alpha * distances))
        share = 1.0 / ops.sum(ops.cast(same, "float32"), axis=0)
        of_nodes = ops.sum(incidence * share, axis=1, keepdims=True)
        of_edges = ops.sum(incidence, axis=0)
        incidence = incidence * ops.rsqrt(of_nodes)
        return ops.matmul(
            incidence * (share / of_edges), ops.transpose(incidence)
        )


def _uniform() -> keras.Initializer:
    """PyTorch's for a linear layer; one object always draws the same."""
    return keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
