"""The tiny models that ship, and the scripts that make them and other starts (models before reinforcement learning)."""
