"""What an agent keeps of a conversation, and what of it goes to the model: pure functions and values over chat messages.

history     the value that a session keeps: live messages, cold blocks, a summary
matching    what of a request is new to its session, and where it goes another way
blocks      cold turns, taken apart without loss and found again
compaction  old turns as a summary, hard trimming, the ageing of thoughts
repair      a history that every provider takes, out of whatever was kept
caps        how much of a tool's output reaches the model
tokens      how many tokens a list of messages is about
turns       messages, their reasoning, and what must stay together
"""
