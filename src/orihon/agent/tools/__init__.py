"""The tools of the agent: files of a workspace, a shell, and whatever MCP servers offer. `box.Toolbox` holds them."""
