"""`import orihon` costs next to nothing."""

import json
import subprocess
import sys

import pytest

WATCH = """
import sys, json
seen = []
def hook(event, args):
    if event == "open" and not str(args[0]).endswith((".py", ".pyc", ".so")) and "__pycache__" not in str(args[0]):
        seen.append([event, str(args[0])])
    elif event.startswith(("socket.", "subprocess.", "os.system", "os.fork", "sqlite3.", "_thread.start_new_thread")):
        seen.append([event, ""])
sys.addaudithook(hook)
"""
MEMORY = """
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
before = resident()
"""
EVERYTHING = "import orihon; [getattr(orihon, name) for name in orihon.__all__]"
HEAVY = ["yaml", "click", "sqlite3", "asyncio", "ssl", "splintr", "openai", "anthropic", "mcp", "psycopg", "rich"]


def run(script):
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("statement", ["import orihon", EVERYTHING])
def test_import_reads_no_file_and_opens_no_socket(statement):
    """Importing looks at nothing but modules, and starts no thread or process."""
    assert run(f"{WATCH}\n{statement}\nprint(json.dumps(seen))") == []


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is needed to see the memory: run it on Linux")
def test_import_stays_under_15_mb():
    """The package with all its public names is small beside a bare interpreter."""
    grown = run(f"{MEMORY}\n{EVERYTHING}\nimport json; print(json.dumps(resident() - before))")
    assert grown < 15


@pytest.mark.parametrize("statement", [EVERYTHING, "import orihon.agent.models"])
def test_import_loads_nothing_heavy(statement):
    """Libraries are imported when they are first needed, not before."""
    loaded = run(f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))")
    assert not set(HEAVY) & {name.partition(".")[0] for name in loaded}
