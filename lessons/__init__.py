"""The lessons: Markdown pages whose code runs and whose outputs are checked (see README.md)."""
