"""What an agent can call."""

from gateway.agent.tools.tool import Context, Observation, Tool, ToolParameter

__all__ = ["Context", "Observation", "Tool", "ToolParameter"]
