"""Clustering of plain arrays on either device, with a history of all iterations.

These algorithms underlie the routings, which cluster votes with the same steps (`steps`).
"""

from minicaps.clustering.clusters import Clusters
from minicaps.clustering.kmeans import kmeans, soft_kmeans, spherical_kmeans
from minicaps.clustering.mixture import gmm

__all__ = ["Clusters", "gmm", "kmeans", "soft_kmeans", "spherical_kmeans"]
