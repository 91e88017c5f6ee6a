"""Illnesses: what each is called and means, and who has it according to what was read. Pure."""
