"""One run of an agent on one thing: the only place where stores meet context.

config      what a task was started with, and keeps
messages    what a caller says, as a message
history     what is stored of it, read for a window
window      what the model gets
writer      the right to write it: records, events, the row
branches    tangents, rewinds, checkpoints, undo
calls       which tool calls wait, and how they are answered
runs        one run of one tool
summaries   the rolling one, the final one, that of a tangent
lifecycle   which status may follow which
endings     how it ends, or waits
hooks       who wants to hear of it
task        all of it together, as a user writes it
reader      the same to look at, without the right to write
"""
