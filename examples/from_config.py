"""The agents of a config in a program: the same runs, sessions and approvals as a server's, over its store.

`app.load("thinkgate.yaml")` reads yours; without a file there is an agent for each pattern on the demo model.
"""

import sys

from gateway import app
from gateway.agent import ApprovalRequired

with app.load(sys.argv[1] if len(sys.argv) > 1 else None) as program:
    print("agents:", ", ".join(program.agents))
    agent = program.agent(next(iter(program.agents)))
    try:
        print(agent.run("What is 17 * 23?", session="example"))
    except ApprovalRequired as waiting:  # the config wants a person's word; the run waits in the store meanwhile
        print("waits for:", [(call.tool, call.arguments) for call in waiting.calls])
        print(agent.approve(waiting, approved=True))
    for piece in agent.stream("Count to 5", session="example"):
        print(piece, end="", flush=True)
    print()
    print(len(agent.session("example")["messages"]), "messages in the session")
