"""The blocks of code of the pages, and what a page says about a block in a comment that readers do not see.

A comment stands on the line above the block's fence:

    <!-- not run: WHY -->       The block is looked at, and not run.
    <!-- serve: NAME=VALUE … --> The page's server has this configuration from here on, and these variables.
    <!-- with: TOML -->          The block goes on with a configuration that has these lines too.
    <!-- fragment: WHY -->       The block is part of a program: it compiles, and is not run.
    <!-- shape: WHY -->         JSON that is shown for its form: what runs here says other things.
    <!-- about: WHY -->         What is printed begins and ends like this; what is between differs from time to time.
    <!-- message -->            JSON that hooks are sent.
    <!-- file: NAME -->         The shell has a file of this name that says so.
    <!-- drawing -->             The block is nothing that a program reads or writes.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```(\S*) *$")
COMMENT = re.compile(r"<!--\s*(not run|serve|with|fragment|shape|about|message|file|drawing)(?::\s*(.*?))?\s*-->", re.S)


@dataclass
class Block:
    page: str
    line: int
    language: str
    text: str
    word: str = ""
    """What its comment says, or nothing."""
    more: str = ""

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(page, text):
    """All blocks of a page, in order. A fence that is not closed is a mistake of the page."""
    found, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if not fence:
            if lines[at].lstrip().startswith("```"):
                raise SystemExit(f"{page}:{at + 1}: this fence says more than a language")
            at += 1
            continue
        begin, indent = at + 1, len(fence[1])
        end = next((n for n in range(begin, len(lines)) if lines[n].strip() == "```"), None)
        if end is None:
            raise SystemExit(f"{page}:{begin}: this block has no end")
        code = "\n".join(line[indent:] if line[:indent].isspace() else line for line in lines[begin:end]) + "\n"
        block = Block(page, begin, fence[2], code)
        # The comment may have several lines, and ends right above the fence.
        above = "\n".join(lines[max(0, at - 12) : at])
        comment = list(COMMENT.finditer(above))
        if comment and above[comment[-1].end() :].strip() == "":
            block.word, block.more = comment[-1][1], comment[-1][2] or ""
        found.append(block)
        at = end + 1
    return found


def names(root):
    """The README and every page below docs."""
    return ["README.md", *sorted(page.relative_to(root).as_posix() for page in Path(root, "docs").glob("*.md"))]


def of(root):
    """The blocks of all pages, by page. Pages that are generated have blocks too."""
    return {name: blocks(name, Path(root, name).read_text()) for name in names(root)}
