"""The classes that the specification names, with its methods, arguments and return values.

They are thin: a task of the engine does the work, and stores the same files. New programs use `orihon.open` instead.
Code that was written against the specification runs with these names:

    TaskContextManager, MessageStore, SummaryStore, ToolStore, ContextCompressor      document 002
    ContextInheritanceManager, PreviousContext, InheritanceContext                    document 001
    ContextManager, HISTORY_CONFIG                                                    document 003
    ConversationState                                                                 document 004
"""

from orihon.compat.conversation import ConversationState
from orihon.compat.history import HISTORY_CONFIG, ContextManager
from orihon.compat.inheritance import ContextInheritanceManager, InheritanceContext, PreviousContext
from orihon.compat.storage import ContextCompressor, MessageStore, SummaryStore, TaskContextManager, ToolStore

__all__ = [
    "HISTORY_CONFIG",
    "ContextCompressor",
    "ContextInheritanceManager",
    "ContextManager",
    "ConversationState",
    "InheritanceContext",
    "MessageStore",
    "PreviousContext",
    "SummaryStore",
    "TaskContextManager",
    "ToolStore",
]
