"""How an agent works: one coroutine per pattern, over a Run."""
