"""What was foreseen of jobs, beside what became of them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_MOMENTS = ("made_us", "low_us", "mid_us", "high_us")
_FIGURES = ("spread", "queueing_s", "startup_s", "training_s", "preemptions_s", "cleanup_s", "preemptions")


def upgrade() -> None:
    op.create_table(
        "estimates",
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("moment", sa.String(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _MOMENTS),
        *(sa.Column(name, sa.Float(), nullable=False) for name in _FIGURES),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_estimates_job")),
        sa.PrimaryKeyConstraint("job", "moment", name=op.f("pk_estimates")),
    )


def downgrade() -> None:
    op.drop_table("estimates")
