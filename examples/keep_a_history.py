"""Keep a task's messages in plain files and read them back. Run it twice: it continues where it stopped."""

import sys
import tempfile
from pathlib import Path

from orihon import Message, TaskKey
from orihon.codec import now
from orihon.errors import NotFound
from orihon.records import Metadata
from orihon.stores import open_store

place = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "contexts"
about = Metadata(
    uuid="issue-27", task_key=TaskKey.github("acme", "shop", issue=27), created_at=now(), user="alice", format=1
)

with open_store(place) as store:
    try:
        lease = store.lease(about.uuid)
    except NotFound:
        lease = store.lease(about.uuid, create=about)
    with lease:
        for content in ("The total of an empty basket is wrong.", "My address is alice@example.com."):
            lease.append(Message(seq=0, role="user", content=content, timestamp="", tokens=0))
    for message in store.read(about.uuid, Message):
        print(message.seq, message.content)

print(f"cat {place}/running/{about.uuid}/messages.jsonl")
