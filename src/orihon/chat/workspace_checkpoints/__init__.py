"""The file half of a checkpoint: a private git repository beside a workspace. The user's repository is never touched.

checkpoints = WorkspaceCheckpoints(repository, workspace)
snapshot = checkpoints.take("before the refactor")
checkpoints.diff(snapshot.commit)                    # against the files as they are now
result = checkpoints.restore(snapshot.commit)        # newer files stay; hard=True removes them
checkpoints.restore(result.before, hard=True)        # undoes the restore
"""

from orihon.chat.workspace_checkpoints.repository import RestoreResult, WorkspaceCheckpoints
from orihon.chat.workspace_checkpoints.snapshot import FileChange, Snapshot

__all__ = ["FileChange", "RestoreResult", "Snapshot", "WorkspaceCheckpoints"]
