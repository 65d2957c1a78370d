"""Thinkgate: an OpenAI-compatible gateway with provider chains, adapters and agents."""

__version__ = "0.1.0"
