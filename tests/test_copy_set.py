"""The copy set: the files README says to copy work alone, without any agent framework."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

USE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"langchain", "langchain_core", "langgraph", "langchain_groq", "pydantic"}:
            raise ImportError(f"{name} is no part of the copy set")

sys.meta_path.insert(0, Refuse())

import httpx
from domains.checkout.rules import BOOK
from domains.mapping import Reply
from orchestration.router import decide

body = {"error": {"type": "card_error", "code": "card_declined", "decline_code": "insufficient_funds"}}
content, artifact = BOOK.classify(Reply(response=httpx.Response(402, json=body))).as_tool_result()
call = {"name": "pay", "args": {}, "id": "1"}
decision = decide([
    {"type": "human", "content": "Pay."},
    {"type": "ai", "content": "", "id": "m1", "tool_calls": [call]},
    {"type": "tool", "content": content, "artifact": artifact, "tool_call_id": "1", "status": "error"},
])
print(decision.route.value, decision.rule, decision.text == content)
"""


def copy_set() -> list[str]:
    """Return the files that README names between its copy-set marks."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("<!-- copy set -->")[1]
    return re.findall(r"^- `([\w/.]+\.py)`", block, re.MULTILINE)


def test_copied_files_work_alone(tmp_path: Path) -> None:
    """Copied into an empty folder, the set classifies a reply and decides, with httpx as its only package."""
    files = copy_set()
    assert len(files) >= 6
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ("finalize fatal True\n", "") == (done.stdout, done.stderr)
