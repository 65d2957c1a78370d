"""The model alone: plain, streamed, and what goes wrong as an error with a type."""

import os

from gateway.agent import LLM, Message
from gateway.errors import GatewayError

with LLM() if os.environ.get("LLM_MODEL_ID") else LLM.demo() as llm:
    print(llm.think([Message("Answer in one word.", "system"), Message("Say hello", "user")]))
    for piece in llm.think_stream([{"role": "user", "content": "Count to 5"}], temperature=0.2, max_tokens=50):
        print(piece, end="", flush=True)
    print()

with LLM("nobody", "no-key", "http://127.0.0.1:9/v1", timeout=5, retries=0) as llm:
    try:
        llm.think([{"role": "user", "content": "Is anybody there?"}])
    except GatewayError as error:
        print(f"{type(error).__name__}: {error}")
