"""Agents: models that think, call tools and keep what they did in a journal.

events     what happens in a run, in the order in which it happens
run        one run: asks its model, calls its tools, keeps each result; goes on where its journal ends
patterns   simple, react, two_stage, reflection, plan_and_solve: coroutines over a Run
tools      what an agent can call
"""
