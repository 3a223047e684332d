"""The policy, and what it is sampled with: loading, prompts, engines (transformers, vLLM), turns, grades."""
