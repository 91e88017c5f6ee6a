"""Illnesses: names, meanings and remedies of all faults, and the rules that find them in observations. Pure."""
