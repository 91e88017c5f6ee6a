"""Access control: the identity of a sender, the needs of a request, and the decision of the rules (broker.md §22).

Pure.
"""
