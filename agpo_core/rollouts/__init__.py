"""The policy and how it is sampled: loading, prompts, engines (transformers, vLLM), turns, grades."""
