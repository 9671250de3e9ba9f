"""The way the tables came to be: one Alembic revision per file in ``versions``."""
