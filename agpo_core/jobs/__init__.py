"""Runs as processes: start, watch, end and kill them; whose folder it is, and ranks that fail together."""
