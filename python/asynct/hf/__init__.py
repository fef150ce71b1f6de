"""Transformers remote-code files. They are copied, as they are, into checkpoint directories."""
