"""Makes a book of the pages and follows its links: book.py MDBOOK DIRECTORY

The book has the pages at the places that they have in the repository, so that a link leads to the same page here and there.
What is no page and is linked to, such as a program of the examples, is copied beside them.
"""

import html.parser
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


def lay_out(source):
    """Copies the pages that the table of contents names, and all that they link to. Returns the folders among these."""
    shutil.rmtree(source, ignore_errors=True)
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    named = [beside(Path("docs/SUMMARY.md"), link) for link in LINK.findall(summary)]
    forgotten = {page.relative_to(ROOT) for page in (ROOT / "docs").glob("*.md")} - {*named, Path("docs/SUMMARY.md")}
    assert not forgotten, f"docs/SUMMARY.md does not name {sorted(map(str, forgotten))}"
    folders = set()
    for page in named:
        text = (ROOT / page).read_text()
        for link in LINK.findall(text):
            if ":" in link or link.startswith("#"):
                continue
            target = beside(page, link.split("#")[0])
            if (ROOT / target).is_dir():
                folders.add(target)
                copies = [file.relative_to(ROOT) for file in (ROOT / target).iterdir() if file.is_file()]
            else:
                assert (ROOT / target).exists(), f"{page}: {link} leads nowhere"
                copies = [target]
            for copy in copies:
                if copy not in named:
                    (source / copy).parent.mkdir(parents=True, exist_ok=True)
                    # A page that is no chapter is shown as it is written.
                    shutil.copyfile(ROOT / copy, source / copy)
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        (source / at(page)).write_text(LINK.sub(lambda link: renamed(link[1]), text))
    place = lambda link: at(beside(Path("docs/SUMMARY.md"), link)).as_posix()
    (source / "SUMMARY.md").write_text(LINK.sub(lambda link: place(link[1]), summary))
    return folders


def beside(page, link):
    parts = []
    for part in (page.parent / link).parts:
        parts.pop() if part == ".." else parts.append(part)
    return Path(*parts)


def at(page):
    """Where a page stands in the book: a README is what a folder begins with."""
    return page.with_name("index.md") if page.name == "README.md" else page


def renamed(link):
    return link if ":" in link else re.sub(r"(^|/)README\.md(?=#|$)", r"\1index.md", link)


class Page(html.parser.HTMLParser):
    """The links of a page of the book, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value and tag in ("a", "img", "link", "script"):
                self.links.append(value)


def dead(book):
    """The links of the book that lead nowhere in it."""
    pages = {path: Page(path.read_text()) for path in book.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            address, _, heading = urllib.parse.unquote(link).partition("#")
            if ":" in address or path.name in ("print.html", "404.html", "toc.html"):
                continue
            target = (path.parent / address).resolve() if address else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{path.relative_to(book)}: {link} leads nowhere")
            elif heading and target in pages and heading not in pages[target].ids:
                found.append(f"{path.relative_to(book)}: {link}: no such heading")
    return pages, found


def main(mdbook, directory):
    directory = Path(directory).resolve()
    folders = lay_out(directory / "src")
    for name in ("book.toml", "book.css"):
        shutil.copyfile(ROOT / "docs" / name, directory / name)
    command = [mdbook, "build", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode or "WARN" in said or "ERROR" in said:
        sys.exit(f"the book cannot be built:\n{said}")
    book = directory / "html"
    for folder in folders:
        index = book / folder / "index.html"
        if not index.exists():
            names = sorted(file.name for file in (book / folder).iterdir())
            items = "".join(f'<li><a href="{name}">{name}</a></li>' for name in names)
            index.write_text(f"<!doctype html><meta charset=utf-8><title>{folder}</title><h1>{folder}</h1><ul>{items}</ul>\n")
    pages, found = dead(book)
    links = sum(len(page.links) for page in pages.values())
    print(f"book: {len(pages)} pages, {links} links, at {book}/index.html")
    if found or len(pages) < 40:
        sys.exit("\n".join(sorted(set(found))) or "it looked in the wrong place")


if __name__ == "__main__":
    main(*sys.argv[1:])
