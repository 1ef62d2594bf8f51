"""The paper's tasks as experiments: what the command line runs, summarises and reproduces."""
