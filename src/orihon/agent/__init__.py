"""The agent: it works on issues with a model, tools and the engine.

models              answer windows
tools               read and change files, run commands, call MCP servers
sources             find issues, and report on them
loop                turns of a task: window, model, tools
handler             one task from its request to its end
control             pausing, stopping and new comments
progress_comment    the comment that shows the progress of a task
targets             what the user wants to be worked on
run_setup           everything that one run needs
user_settings       the settings of the user of a task
queue               tasks that wait for a worker
worker              one process for each of them
"""
