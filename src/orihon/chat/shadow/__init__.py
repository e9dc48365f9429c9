"""The files half of a checkpoint: a git repository of our own beside a workspace, which the user's never hears of.

shadow = Shadow(repository, workspace)
taken = shadow.take("before the refactor")
shadow.diff(taken.commit)                       # against the files as they are now
restored = shadow.restore(taken.commit)         # files made since stay; hard=True removes them
shadow.restore(restored.before, hard=True)      # takes the restore back
"""

from orihon.chat.shadow.ground import check_workspace
from orihon.chat.shadow.repository import MAX_FILE_BYTES, Shadow
from orihon.chat.shadow.values import Change, Restored, Skipped, Taken

__all__ = ["MAX_FILE_BYTES", "Change", "Restored", "Shadow", "Skipped", "Taken", "check_workspace"]
