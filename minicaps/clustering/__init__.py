"""Clustering of plain arrays, on either device, with the history of every iteration.

The views behind the routings: a routing clusters votes with the same steps (`steps`).
"""

from minicaps.clustering.clusters import Clusters
from minicaps.clustering.kmeans import kmeans, soft_kmeans, spherical_kmeans
from minicaps.clustering.mixture import gmm

__all__ = ["Clusters", "gmm", "kmeans", "soft_kmeans", "spherical_kmeans"]
