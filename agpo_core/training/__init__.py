"""Policy, rollouts, the loop, and the jobs that run it."""
