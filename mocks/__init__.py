"""Fakes on the wire: vendors, Groq, and a scripted model. They know neither domains nor orchestration."""
