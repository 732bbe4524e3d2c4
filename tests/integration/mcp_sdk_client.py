"""A program for the environments of tests/old_tools.py: the SDK's own client lists and calls tools.

It reads `{"command": [...], "mode": "handshake" | "2026-07-28", "calls": [[tool, arguments], ...]}` on stdin, and
writes what it got as JSON.
"""

import asyncio
import json
import sys

MOST_AT_ONCE = 2


async def handshake(command, calls):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(command=command[0], args=command[1:], env=ENVIRONMENT)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        begun = await session.initialize()
        listed = await session.list_tools()
        return {
            "version": getattr(begun, "protocolVersion", None) or begun.protocol_version,
            "tools": [tool.model_dump(mode="json", by_alias=True) for tool in listed.tools],
            "answers": await called(session.call_tool, calls),
        }


async def stateless(command, calls):
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(command=command[0], args=command[1:], env=ENVIRONMENT)
    async with Client(stdio_client(server), mode="auto") as client:
        listed = await client.list_tools()
        return {
            "version": client.protocol_version,
            "tools": [tool.model_dump(mode="json", by_alias=True) for tool in listed.tools],
            "answers": await called(client.call_tool, calls),
        }


async def called(call_tool, calls):
    turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def call(name, arguments):
        async with turns:
            try:
                answer = await call_tool(name, arguments)
            except Exception as error:
                return {"tool": name, "raised": f"{type(error).__name__}: {error}"}
            return {"tool": name, **answer.model_dump(mode="json", by_alias=True)}

    return await asyncio.gather(*[call(*each) for each in calls])


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    ENVIRONMENT = asked["environment"]
    run = handshake if asked["mode"] == "handshake" else stateless
    json.dump(asyncio.run(run(asked["command"], asked["calls"])), sys.stdout)
