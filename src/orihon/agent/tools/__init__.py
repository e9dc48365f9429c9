"""The tools of the agent: files of a workspace, a shell, and MCP servers. `toolbox.Toolbox` holds them."""
