"""Markdown templates: system, task, repair."""
