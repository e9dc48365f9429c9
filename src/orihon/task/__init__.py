"""One run of an agent on one thing: the only place where stores meet context.

frozen      what a task was started with, and keeps
history     what is stored of it, read for a window
window      what the model gets
runs        one run of one tool
lifecycle   which status may follow which, and how a task ends
side        side conversations and checkpoints
task        all of it together, as a user writes it
reader      the same to look at, without the right to write
"""
