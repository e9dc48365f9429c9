"""The agent: what the engine needs around it to finish an issue.

models      who answers
tools       what it can do, and where
sources     where work comes from, and who hears of it
loop        window, model, tools, one turn after another
handler     one task from its request to its end
setup       all of that for one run, from the settings and a job
queue       tasks that wait, and who takes them
worker      one process for each of them
"""
