"""Vectors of the words of sentences: from language models and static tables, side by side, remembered and measured."""
