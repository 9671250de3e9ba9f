"""The first tables."""

from __future__ import annotations

from alembic import op

from scrapy_resume.store import schema

revision = "0001"
down_revision = None


def upgrade() -> None:
    bind = op.get_bind()
    schema.build(op.get_context().opts["prefix"]).metadata.create_all(bind)
