"""Runs as processes: start, watch, stop and kill them; lock their folders; let all ranks of a run fail together."""
