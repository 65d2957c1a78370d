"""What an agent keeps of a conversation, and what of it goes to the model: pure functions and values over chat messages.

caps        how much of a tool's output reaches the model
repair      a history that every provider takes, out of whatever was kept
compaction  old turns as a summary, hard trimming, the ageing of thoughts
tokens      how many tokens a list of messages is about
turns       messages, their reasoning, and what must stay together
"""
