"""The row that a task begins with."""

from __future__ import annotations

from orihon.records import Metadata, Status, TaskRow


def first_row(metadata: Metadata, status: Status, fence: int) -> TaskRow:
    """The row of a task that was just made."""
    key, config = metadata.task_key, metadata.config
    return TaskRow(
        uuid=metadata.uuid,
        task_source=key.task_source,
        owner=key.owner,
        repo=key.repo,
        task_type=key.task_type,
        task_id=key.task_id,
        project_id=key.project_id,
        task_key=str(key),
        status=status,
        created_at=metadata.created_at,
        started_at=metadata.created_at if status == "running" else None,
        process_id=metadata.process_id,
        hostname=metadata.hostname,
        llm_provider=config.get("llm_provider"),
        model=config.get("model"),
        context_length=config.get("context_length"),
        user=metadata.user,
        activity="initializing",
        updated_at=metadata.created_at,
        fence=fence,
    )
