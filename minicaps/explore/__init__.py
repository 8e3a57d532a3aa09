"""Pages in which a network or a routing computes in the browser."""
