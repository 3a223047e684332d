"""The training loop, the run that it trains, and the parts of one update."""
