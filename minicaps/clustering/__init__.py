"""Clustering of plain arrays on the CPU or a GPU, with a history of all iterations.

The routings are based on these algorithms and cluster votes with the same steps (see `steps`).
"""

from minicaps.clustering.clusters import Clusters
from minicaps.clustering.kmeans import kmeans, soft_kmeans, spherical_kmeans
from minicaps.clustering.mixture import gmm

__all__ = ["Clusters", "gmm", "kmeans", "soft_kmeans", "spherical_kmeans"]
