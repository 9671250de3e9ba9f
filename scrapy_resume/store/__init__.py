"""The database: every statement of the package is in here, and nothing but statements.

Synchronous code, called from store threads, never from the event loop.
"""
