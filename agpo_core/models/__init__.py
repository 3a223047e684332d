"""The tiny models that ship, and the scripts that made them and other starts."""
