"""Teams, users, queues, classes, drains, reservations, accounts; arrays, dependencies, time used, orders."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_JOBS = ("array", "task", "waits_for", "ran_us", "first_us")
_ATTEMPTS = ("save_no", "signal_no", "signal")


def upgrade() -> None:
    op.create_table(
        "records",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_records")),
    )
    op.create_table(
        "accounts",
        sa.Column("team", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("gpu_s", sa.Float(), nullable=False),
        sa.Column("lost_gpu_s", sa.Float(), nullable=False),
        sa.Column("recent_gpu_s", sa.Float(), nullable=False),
        sa.Column("recent_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("team", "user", name=op.f("pk_accounts")),
    )
    op.add_column("jobs", sa.Column("array", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("task", sa.Integer(), nullable=True))
    op.add_column("jobs", sa.Column("waits_for", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("jobs", sa.Column("ran_us", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("first_us", sa.BigInteger(), nullable=True))
    op.add_column("attempts", sa.Column("save_no", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("attempts", sa.Column("signal_no", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("attempts", sa.Column("signal", sa.String(), nullable=False, server_default=""))


def downgrade() -> None:
    """SQLite drops columns itself since 3.35: no table is copied, so no foreign key is in the way."""
    for name in _ATTEMPTS:
        op.drop_column("attempts", name)
    for name in _JOBS:
        op.drop_column("jobs", name)
    op.drop_table("accounts")
    op.drop_table("records")
