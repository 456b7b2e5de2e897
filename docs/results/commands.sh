#!/bin/sh
# The commands of the tables in docs/results, each below what it measures: not
# to be run as a whole. Folders of the same name are one benchmark.
# Heads started at random when these were measured, but for those "from
# features": for the same numbers, add --set head_init=random, and for frozen
# heads on Caltech-101 the settings in caltech101_trials.csv.
# Emoji and Caltech-101 need a table of pictures and a network, see emoji.md.

# glyphs: six methods, five seeds
keras-dml benchmark \
    glyphs/baseline \
    glyphs/divide_and_conquer \
    glyphs/dcml \
    glyphs/abe \
    glyphs/attentive_grouping \
    glyphs/diva \
    --seeds 5 --output runs/glyphs --baseline glyphs-baseline

# glyphs: independent networks and BIER, five seeds
keras-dml benchmark glyphs/baseline \
    glyphs/ensemble_same_weights \
    glyphs/bier \
    --metrics recall@1,map@r --seeds 5 --output runs/glyphs_ensembles

# glyphs: tuned learning rates, five seeds
keras-dml benchmark \
    glyphs/baseline \
    glyphs/attentive_grouping \
    glyphs/abe \
    glyphs/diva \
    glyphs/divide_and_conquer \
    glyphs/dcml \
    glyphs/bier::optimizer.learning_rate=8e-3 \
    --set optimizer.learning_rate=4e-3 \
    --metrics recall@1,map@r --seeds 5 --output runs/glyphs_tuned

# Twenty epochs
keras-dml benchmark glyphs/baseline \
    glyphs/baseline::name=gem::method.pooling=gem \
    glyphs/attentive_grouping \
    --set optimizer.learning_rate=4e-3 --set epochs=20 \
    --metrics recall@1,map@r --seeds 5 --output runs/glyphs_20_epochs

# Divide and conquer
keras-dml benchmark \
    glyphs/divide_and_conquer \
    glyphs/divide_and_conquer::name=dc-random-partition::method.partition=random \
    glyphs/divide_and_conquer::name=dc-no-split::method.split_embedding=false \
    --seeds 5 --output runs/glyphs --baseline glyphs-divide-and-conquer

# DCML
keras-dml benchmark \
    glyphs/dcml \
    glyphs/dcml::name=dcml-no-compositors::method.num_compositors=0::method.input_norm=false \
    'glyphs/dcml::name=dcml-no-reinforcement::loss_weights={reinforcement: 0}' \
    --seeds 5 --output runs/glyphs --baseline glyphs-dcml

# ABE
keras-dml benchmark \
    glyphs/abe \
    glyphs/abe::name=abe-no-divergence::method.divergence=false \
    --seeds 5 --output runs/glyphs --baseline glyphs-abe

# Attentive grouping
keras-dml benchmark \
    glyphs/attentive_grouping \
    glyphs/attentive_grouping::name=grouping-G::method.grouping=G \
    glyphs/attentive_grouping::name=grouping-C::method.grouping=C \
    glyphs/attentive_grouping::name=grouping-M::method.grouping=M \
    glyphs/attentive_grouping::name=grouping-N::method.grouping=N::method.num_groups=1 \
    --seeds 5 --output runs/glyphs --baseline glyphs-attentive-grouping

# DiVA
keras-dml benchmark \
    glyphs/diva \
    glyphs/diva::name=diva-no-decorrelation::method.rho=0 \
    'glyphs/diva::name=diva-discriminative-only::method.tasks=[discriminative, discriminative, discriminative, discriminative]::method.test_weights=null' \
    --seeds 5 --output runs/glyphs --baseline glyphs-diva

# Emoji: without training, by all training classes, on both layers
keras-dml train emoji/whitening \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --set data.validation=0 --output runs/emoji_whitening
keras-dml train emoji/whitening \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --set backbone.output=block6b_add \
    --set data.validation=0 --output runs/emoji_lower_whitening

# Caltech-101: without training, by all 51 classes
keras-dml train caltech101/whitening \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --set data.validation=0 --output runs/caltech101_whitening
keras-dml train caltech101/whitening \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --set data.validation=0 --set method.embedding_dim=512 \
    --output runs/caltech101_whitening_512

# Caltech-101: photographs, a pretrained network, three seeds
keras-dml benchmark \
    caltech101/baseline \
    caltech101/divide_and_conquer \
    caltech101/dcml \
    caltech101/abe \
    caltech101/attentive_grouping \
    caltech101/diva \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --seeds 3 --output runs/caltech101

# Caltech-101: frozen, from features; the tuning, and five seeds
keras-dml tune caltech101/frozen_dcml \
    --space docs/results/spaces/caltech101_from_features/frozen_dcml.yaml --trials 16 \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras
keras-dml benchmark \
    caltech101/frozen_baseline \
    caltech101/frozen_proxy_anchor \
    caltech101/frozen_ensemble \
    caltech101/frozen_dcml \
    caltech101/frozen_divide_and_conquer \
    caltech101/frozen_bier \
    caltech101/frozen_diva \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/caltech101_frozen

# Caltech-101: frozen, pooling
keras-dml benchmark caltech101/frozen_baseline \
    caltech101/frozen_baseline::name=gem::method.pooling=gem \
    caltech101/frozen_baseline::name=max::method.pooling=max \
    caltech101/frozen_proxy_anchor \
    caltech101/frozen_proxy_anchor::name=proxy-anchor-gem::method.pooling=gem \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/caltech101_pooling

# Emoji: many classes, a frozen pretrained network, five seeds
keras-dml tune emoji/dcml --space docs/results/spaces/emoji/dcml.yaml \
    --trials 12 --warmup-epochs 0 \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras

# Leaderboard of glyphs
keras-dml benchmark glyphs/baseline \
    glyphs/baseline::name=glyphs-baseline-gem::method.pooling=gem \
    glyphs/recall_at_k::name=glyphs-recall-at-k-gem::method.layer_norm=false \
    glyphs/attentive_grouping \
    glyphs/attentive_grouping::name=glyphs-gates-gem::method.grouping=G::method.pooling=gem \
    glyphs/abe \
    glyphs/diva \
    glyphs/divide_and_conquer \
    glyphs/divide_and_conquer::name=glyphs-divide-and-conquer-gem::method.pooling=gem \
    glyphs/dcml \
    glyphs/dcml::name=glyphs-dcml-gem::method.pooling=gem \
    glyphs/bier::optimizer.learning_rate=8e-3 \
    glyphs/hdc \
    glyphs/mic \
    glyphs/s2sd::optimizer.learning_rate=2e-3 \
    glyphs/dreml::optimizer.learning_rate=2e-3 \
    glyphs/abe::name=glyphs-abe-gem::method.pooling=gem \
    glyphs/diva::name=glyphs-diva-gem::method.pooling=gem \
    glyphs/bier::name=glyphs-bier-gem::method.pooling=gem::optimizer.learning_rate=8e-3 \
    --set optimizer.learning_rate=4e-3 \
    --metrics recall@1,map@r --seeds 5 --output runs/glyphs \
    --baseline glyphs-baseline

# Leaderboard of emoji: Layer of the features
keras-dml benchmark emoji/baseline::name=emoji-layer-top \
    emoji/baseline::name=emoji-layer-block6d::backbone.output=block6d_add \
    emoji/baseline::name=emoji-layer-block6b::backbone.output=block6b_add \
    emoji/baseline::name=emoji-layer-block5c::backbone.output=block5c_add \
    emoji/margin::name=emoji-layer-margin::backbone.output=block6b_add \
    emoji/proxy_anchor::name=emoji-layer-proxy-anchor::backbone.output=block6b_add \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --jobs 2 --output runs/emoji_layers

# Leaderboard of emoji
keras-dml benchmark emoji/proxy_nca_pp \
    emoji/proxy_anchor \
    emoji/mic \
    emoji/dcml \
    emoji/ensemble \
    emoji/margin \
    emoji/divide_and_conquer \
    emoji/dreml \
    emoji/contrastive \
    emoji/matryoshka \
    emoji/baseline \
    emoji/soft_triple \
    emoji/s2sd \
    emoji/recall_at_k \
    emoji/hyp \
    emoji/attentive_grouping \
    emoji/diva \
    emoji/bier \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/emoji \
    --baseline emoji-proxy-anchor

# Leaderboard of emoji, a lower layer: Causes of the gain
keras-dml benchmark \
    emoji/lower_attentive_grouping \
    emoji/lower_attentive_grouping::name=no-diversity::loss_weights.diversity=0 \
    emoji/lower_attentive_grouping::name=gates::method.grouping=G \
    emoji/lower_attentive_grouping::name=channels::method.grouping=C \
    emoji/lower_attentive_grouping::name=one-group::method.num_groups=1 \
    'emoji/lower_attentive_grouping::name=not-trained::method.num_groups=1::rate_multipliers={key_kernel: 0, queries: 0}' \
    emoji/lower_attentive_grouping::name=four-of-128::method.embedding_dim=512 \
    emoji/lower_contrastive::name=dimensions-512::method.embedding_dim=512 \
    emoji/lower_attentive_grouping::name=diversity-0.01::loss_weights.diversity=0.01 \
    emoji/lower_attentive_grouping::name=block6d::backbone.output=block6d_add \
    emoji/lower_attentive_grouping::name=block5c::backbone.output=block5c_add \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --jobs 2 --output runs/lower_causes

# Leaderboard of emoji, a lower layer: Search
keras-dml tune emoji/lower_dcml --space docs/results/spaces/emoji/lower_dcml.yaml \
    --trials 20 --warmup-epochs 0 \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras

# Leaderboard of emoji, a lower layer: Caltech-101
keras-dml benchmark caltech101/lower_baseline \
    caltech101/lower_attentive_grouping \
    caltech101/lower_attentive_grouping::name=four-of-128::method.embedding_dim=512 \
    caltech101/lower_baseline::name=dimensions-512::method.embedding_dim=512 \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/caltech101_lower

# Leaderboard of emoji, a lower layer
keras-dml benchmark emoji/lower_attentive_grouping \
    emoji/lower_margin \
    emoji/lower_divide_and_conquer \
    emoji/lower_ensemble \
    emoji/lower_baseline \
    emoji/lower_contrastive \
    emoji/lower_dcml \
    emoji/lower_proxy_anchor \
    emoji/lower_margin_gem \
    emoji/lower_diva \
    emoji/lower_bier \
    emoji/lower_mic \
    emoji/lower_dreml \
    emoji/lower_matryoshka \
    emoji/lower_hyp \
    emoji/lower_recall_at_k \
    emoji/lower_proxy_nca_pp \
    emoji/lower_soft_triple \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --jobs 2 --output runs/emoji_lower \
    --baseline emoji-lower-baseline

# Leaderboard of emoji, upper layers: The two blocks below instead
keras-dml benchmark emoji/upper_baseline::name=cut-baseline \
    emoji/upper_attentive_grouping::name=cut-attentive-grouping \
    emoji/upper_margin::name=cut-margin \
    'emoji/upper_attentive_grouping::name=cut-attentive-grouping-margin::method.loss={name: margin, beta: 0.7, alpha: 0.208}' \
    --set backbone.output=block6b_add --set backbone.freeze_until=block5c_add \
    --set optimizer.learning_rate=3e-4 \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --jobs 2 --output runs/emoji_cut

# Leaderboard of emoji, upper layers: Ten epochs instead of four
keras-dml benchmark emoji/upper_baseline emoji/upper_attentive_grouping \
    --set epochs=10 \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/emoji_upper_10

# Leaderboard of emoji, upper layers
keras-dml benchmark emoji/upper_baseline \
    emoji/upper_baseline::name=emoji-upper-gem::method.pooling=gem \
    emoji/upper_hdc \
    emoji/upper_attentive_grouping \
    emoji/upper_divide_and_conquer \
    emoji/upper_margin \
    emoji/upper_margin::name=emoji-upper-margin-gem::method.pooling=gem \
    emoji/upper_contrastive \
    emoji/upper_proxy_anchor \
    emoji/upper_dcml \
    emoji/upper_bier \
    emoji/upper_diva \
    emoji/upper_abe \
    'emoji/upper_attentive_grouping::name=emoji-upper-attentive-grouping-margin::method.loss={name: margin, beta: 0.7, alpha: 0.208}' \
    'emoji/upper_hdc::name=emoji-upper-hdc-margin::method.loss={name: margin, beta: 0.7, alpha: 0.208}' \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --jobs 2 --output runs/emoji_upper

# Leaderboard of emoji, whole network: Eight epochs on a GPU, two seeds
keras-dml benchmark emoji/full_baseline \
    emoji/full_baseline::name=emoji-full-gem::method.pooling=gem \
    emoji/full_attentive_grouping \
    emoji/full_hdc \
    emoji/full_divide_and_conquer \
    emoji/full_abe \
    emoji/full_proxy_anchor \
    --set epochs=8 \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --jobs 14 --output runs/emoji_full_8

# Leaderboard of emoji, whole network
keras-dml benchmark emoji/full_baseline \
    emoji/full_baseline::name=emoji-full-gem::method.pooling=gem \
    emoji/full_attentive_grouping \
    emoji/full_hdc \
    emoji/full_divide_and_conquer \
    emoji/full_attentive_grouping::name=emoji-full-attentive-grouping-block6b::backbone.output=block6b_add \
    emoji/full_baseline::name=emoji-full-block6b::backbone.output=block6b_add \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --jobs 2 --output runs/emoji_full

# ABE: Divergence
keras-dml benchmark glyphs/abe \
    glyphs/abe::name=abe-no-divergence::method.divergence=false \
    --seeds 5 --output runs/glyphs --baseline glyphs-abe

# ABE: Number of learners
keras-dml benchmark glyphs/baseline \
    glyphs/abe::name=abe-1::method.num_learners=1 \
    glyphs/abe::name=abe-2::method.num_learners=2 \
    glyphs/abe::name=abe-4 \
    --metrics recall@1,map@r --seeds 5 --output runs/abe_learners

# Attentive grouping: Tokens of a transformer. vit.keras is what
# small_vit.py saves.
keras-dml benchmark \
    'glyphs/baseline::optimizer.learning_rate=1e-3' \
    'glyphs/attentive_grouping::optimizer.learning_rate=4e-3' \
    --set backbone.name=vit.keras --set epochs=12 \
    --metrics recall@1,map@r --seeds 5 --output runs/glyphs_vit

# Attentive grouping: Diversity
keras-dml benchmark glyphs/attentive_grouping \
    glyphs/attentive_grouping::name=no-diversity::loss_weights.diversity=0 \
    glyphs/attentive_grouping::name=groups-2::method.num_groups=2 \
    glyphs/attentive_grouping::name=groups-8::method.num_groups=8 \
    --metrics recall@1,map@r --seeds 5 --output runs/glyphs_groups

# Attentive grouping: Tuned on photographs
keras-dml benchmark caltech101/frozen_baseline \
    caltech101/frozen_attentive_grouping \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/caltech101

# Attentive grouping: Photographs with upper layers in training
keras-dml benchmark caltech101/upper_baseline \
    caltech101/upper_attentive_grouping \
    caltech101/upper_attentive_grouping::name=four-of-128::method.embedding_dim=512 \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/caltech101_upper

# Attentive grouping: Causes on frozen features
keras-dml benchmark caltech101/frozen_baseline \
    caltech101/frozen_baseline::name=dimensions-32::method.embedding_dim=32 \
    'caltech101/frozen_attentive_grouping::name=one-group::method.num_groups=1::method.loss={name: contrastive, negative_margin: 1.2, positive_margin: 0.3}' \
    'caltech101/frozen_attentive_grouping::name=not-trained::method.num_groups=1::method.loss={name: contrastive, negative_margin: 1.2, positive_margin: 0.3}::rate_multipliers={key_kernel: 0, queries: 0}' \
    'caltech101/frozen_attentive_grouping::name=four-of-32::method.num_groups=4::method.loss={name: contrastive, negative_margin: 1.2, positive_margin: 0.3}' \
    'caltech101/frozen_attentive_grouping::name=four-of-128::method.num_groups=4::method.embedding_dim=512::method.loss={name: contrastive, negative_margin: 1.2, positive_margin: 0.3}' \
    --set optimizer.learning_rate=4.17e-5 \
    --set data.path=caltech101 \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/caltech101_causes

# DCML: Parts of the method
keras-dml benchmark emoji/dcml \
    emoji/dcml::name=no-compositors::method.num_compositors=0 \
    emoji/dcml::name=no-signs::method.signs=false \
    emoji/dcml::name=no-reinforcement::loss_weights.reinforcement=0 \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/dcml_parts

# DCML: With upper layers in training
keras-dml benchmark emoji/upper_dcml \
    emoji/upper_dcml::name=no-compositors::method.num_compositors=0 \
    emoji/upper_dcml::name=no-reinforcement::loss_weights.reinforcement=0 \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/dcml_upper

# DiVA: Tasks one by one
keras-dml benchmark \
    'glyphs/diva::name=shared::method.embedding_dim=64::method.tasks=[discriminative, shared]::method.test_weights=null::evaluation.parts=2' \
    --metrics recall@1,map@r --seeds 5 --output runs/glyphs_tasks

# DiVA: Queue and weights of DaNCE
keras-dml benchmark glyphs/diva \
    glyphs/diva::name=no-weights::method.weighting=null \
    glyphs/diva::name=over-the-batch::method.weighting=batch_axis \
    glyphs/diva::name=keys-480::method.queue_size=480 \
    --set evaluation.parts=4 \
    --metrics recall@1,map@r --seeds 5 --output runs/glyphs_queue

# DiVA: Parts of the method
keras-dml benchmark emoji/diva \
    emoji/diva::name=no-decorrelation::method.rho=0 \
    'emoji/diva::name=discriminative-only::method.tasks=[discriminative, discriminative, discriminative, discriminative]::method.test_weights=null' \
    emoji/contrastive::name=contrastive-32::method.embedding_dim=32 \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/diva_parts

# Divide and conquer: Number of learners, partition and split. Tables of fewer
# classes are those of `python tests/benchmarks/emoji_table.py --classes`.
keras-dml benchmark \
    emoji/baseline::name=one-learner::optimizer.learning_rate=1.25e-3 \
    emoji/divide_and_conquer::name=learners-2::method.num_learners=2 \
    emoji/divide_and_conquer \
    emoji/divide_and_conquer::name=learners-8::method.num_learners=8 \
    emoji/divide_and_conquer::name=random::method.partition=random \
    emoji/divide_and_conquer::name=no-split::method.split_embedding=false \
    --set data.path=emoji.csv \
    --set backbone.name=efficientnet_lite0_imagenet.keras \
    --metrics recall@1,map@r --seeds 5 --output runs/divisions

# Divide and conquer: Width of the network
keras-dml benchmark glyphs/baseline glyphs/divide_and_conquer \
    --set backbone.width=0.5 \
    --metrics recall@1,map@r --seeds 5 --output runs/half_width

# Text: methods
keras-dml benchmark symbol_names \
    'symbol_names::name=text-dcml::method={name: dcml, embedding_dim: 128, num_learners: 4, num_compositors: 8, input_norm: true, pooling: max, loss: multi_similarity}' \
    'symbol_names::name=text-attentive-grouping::method={name: attentive_grouping, embedding_dim: 128, num_groups: 4, loss: multi_similarity}' \
    'symbol_names::name=text-divide-and-conquer::method={name: divide_and_conquer, embedding_dim: 128, num_learners: 4, pooling: max, loss: multi_similarity}::optimizer.learning_rate=8e-3' \
    --set optimizer.learning_rate=4e-3 \
    --metrics recall@1,map@r --seeds 5 --output runs/text
