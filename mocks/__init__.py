"""Fakes on the wire: three vendors, Groq, and a scripted model. They know neither domains nor orchestration."""
