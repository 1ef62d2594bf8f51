"""Standard EFE and Sophisticated Inference, for comparison: pymdp behind our agent's interface, and exact references."""
