"""The loop, what a run holds, and what one update of it computes."""
