"""What an agent can call."""

from gateway.agent.tools.tool import Context, Observation, Pending, Tool, ToolParameter

__all__ = ["Context", "Observation", "Pending", "Tool", "ToolParameter"]
