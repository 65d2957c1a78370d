"""The drill: a chain of the operator's own config against an upstream that misbehaves in every known way.

server     the faulty upstream: bytes on real sockets, as its handlers say
voices     what a provider of each dialect says: an answer, its pieces, its errors
faults     the faults, each in every dialect, streamed and plain
judging    what a client must see of each one
rehearsal  the drill itself
"""
