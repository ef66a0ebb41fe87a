"""The first schema: jobs, attempts, generations, members, leases, nodes, devices, profiles, events, tokens, audit."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("old", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("new", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("request", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "devices",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("healthy", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_devices")),
    )
    op.create_index(op.f("ix_devices_node"), "devices", ["node"], unique=False)
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("job", sa.BigInteger(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("node", sa.String(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_job_seq"), "events", ["job", "seq"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("team", sa.String(), nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("submitted_us", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("wanted", sa.String(), nullable=False),
        sa.Column("result", sa.String(), nullable=True),
        sa.Column("reason_code", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("reason_since_us", sa.BigInteger(), nullable=True),
        sa.Column("ended_by", sa.String(), nullable=True),
        sa.Column("ended_us", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("spec_key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=True),
        sa.Column("last_attempt", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("faults", sa.Integer(), nullable=False),
        sa.Column("preemptions", sa.Integer(), nullable=False),
        sa.Column("retry_at_us", sa.BigInteger(), nullable=False),
        sa.Column("avoid", sa.JSON(), nullable=False),
        sa.Column("avoid_until_us", sa.BigInteger(), nullable=False),
        sa.Column("microbatch_size", sa.Integer(), nullable=True),
        sa.Column("total_steps", sa.BigInteger(), nullable=True),
        sa.Column("global_batch", sa.BigInteger(), nullable=True),
        sa.Column("saved_step", sa.BigInteger(), nullable=True),
        sa.Column("first_validation_loss", sa.Float(), nullable=True),
        sa.Column("last_validation_loss", sa.Float(), nullable=True),
        sa.Column("wanted_by", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_state"), "jobs", ["state"], unique=False)
    op.create_index(op.f("ix_jobs_team"), "jobs", ["team"], unique=False)
    op.create_table(
        "meta",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_meta")),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("public_key", sa.String(), nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("boot", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("first_seen_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
    )
    op.create_table(
        "profiles",
        sa.Column("spec_key", sa.String(), nullable=False),
        sa.Column("device_kind", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("profiles", sa.JSON(), nullable=False),
        sa.Column("total_steps", sa.BigInteger(), nullable=True),
        sa.Column("global_batch", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("spec_key", "device_kind", name=op.f("pk_profiles")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("team", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=True),
        sa.Column("revoked_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "attempts",
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("nonce", sa.String(), nullable=False),
        sa.Column("starting_us", sa.BigInteger(), nullable=True),
        sa.Column("running_us", sa.BigInteger(), nullable=True),
        sa.Column("stopping_us", sa.BigInteger(), nullable=True),
        sa.Column("ended_us", sa.BigInteger(), nullable=True),
        sa.Column("stop_grace_s", sa.Float(), nullable=True),
        sa.Column("stop_save", sa.Boolean(), nullable=False),
        sa.Column("stop_why", sa.String(), nullable=False),
        sa.Column("stop_by", sa.String(), nullable=True),
        sa.Column("saved_step", sa.BigInteger(), nullable=True),
        sa.Column("resumed_step", sa.BigInteger(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("store", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_attempts_job")),
        sa.PrimaryKeyConstraint("job", "number", name=op.f("pk_attempts")),
    )
    op.create_index(
        "uq_attempts_open",
        "attempts",
        ["job"],
        unique=True,
        sqlite_where=sa.text("state <> 'ENDED'"),
        postgresql_where=sa.text("state <> 'ENDED'"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name=op.f("fk_idempotency_keys_job")),
        sa.PrimaryKeyConstraint("user", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "generations",
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("plan", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ranks", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job", "attempt"], ["attempts.job", "attempts.number"], name=op.f("fk_generations_job_attempt")
        ),
        sa.PrimaryKeyConstraint("job", "attempt", "number", name=op.f("pk_generations")),
    )
    op.create_table(
        "members",
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("cause", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("exited_us", sa.BigInteger(), nullable=True),
        sa.Column("gone_us", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job", "attempt"], ["attempts.job", "attempts.number"], name=op.f("fk_members_job_attempt")
        ),
        sa.PrimaryKeyConstraint("job", "attempt", "number", name=op.f("pk_members")),
    )
    op.create_table(
        "leases",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("member", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("closed_us", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job", "attempt", "member"],
            ["members.job", "members.attempt", "members.number"],
            name=op.f("fk_leases_job_attempt_member"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_index(op.f("ix_leases_state"), "leases", ["state"], unique=False)
    op.create_index(
        "uq_leases_held",
        "leases",
        ["device"],
        unique=True,
        sqlite_where=sa.text("state IN ('HELD', 'QUARANTINED')"),
        postgresql_where=sa.text("state IN ('HELD', 'QUARANTINED')"),
    )
    op.create_index(
        "uq_leases_promised",
        "leases",
        ["device"],
        unique=True,
        sqlite_where=sa.text("state = 'PROMISED'"),
        postgresql_where=sa.text("state = 'PROMISED'"),
    )


def downgrade() -> None:
    op.drop_index("uq_leases_promised", table_name="leases")
    op.drop_index("uq_leases_held", table_name="leases")
    op.drop_index(op.f("ix_leases_state"), table_name="leases")
    op.drop_table("leases")
    op.drop_table("members")
    op.drop_table("generations")
    op.drop_table("idempotency_keys")
    op.drop_index("uq_attempts_open", table_name="attempts")
    op.drop_table("attempts")
    op.drop_table("tokens")
    op.drop_table("profiles")
    op.drop_table("nodes")
    op.drop_table("meta")
    op.drop_index(op.f("ix_jobs_team"), table_name="jobs")
    op.drop_index(op.f("ix_jobs_state"), table_name="jobs")
    op.drop_table("jobs")
    op.drop_index(op.f("ix_events_job_seq"), table_name="events")
    op.drop_table("events")
    op.drop_index(op.f("ix_devices_node"), table_name="devices")
    op.drop_table("devices")
    op.drop_table("audit")
