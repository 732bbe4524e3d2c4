"""Interfaces for agents and notebooks: the MCP server (`mcp/`), the skill (`skill/`), tables and charts."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.agents.notebook import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "agents.notebook": "Shown show",
    },
)
