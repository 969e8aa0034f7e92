"""Tickets as GitHub issues."""
