"""Problems in Cassandra's `.POMDP` format: a file becomes numbers, and these a NumPyro program and a belief.

The modules follow that way: `tokens` (words with their places), `parser` (words to a :class:`Problem`), `program`
(a problem to a model). A few problems come with the package, in `files`.
"""
