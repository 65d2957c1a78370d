"""Tools of MCP servers, over stdio and streamable HTTP.

servers     the servers of all agents: who has which tools, and under which names
tool        one of those tools
results     what a call gave, as text
connection  one server: connected at first use, kept, connected anew after it was lost

The SDK is imported where a first server is connected: it takes a second and 35 MB.
"""

from gateway.agent.mcp.servers import Offered, Servers

__all__ = ["Offered", "Servers"]
