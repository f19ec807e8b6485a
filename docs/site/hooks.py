"""What the site has beside docs/: pages of the repository's root, and the files of data/ that a page links to."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")
_OUTSIDE = re.compile(r"\]\((?:\.\./)+(data/[^)#]+)")


def on_files(files: Files, config: Any) -> Files:
    """All files of docs/, those of the root, and what pages link to in data/."""
    linked = {name for page in files.documentation_pages() for name in _OUTSIDE.findall(page.content_string)}
    for name in sorted({*PAGES, *linked}):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are on the site: data/ and the root's pages lie beside those of docs/."""
    if page.file.src_uri in PAGES:
        return re.sub(r"\]\((?:docs/)?([\w/-]+\.md)", r"](\1", markdown)
    up = "../" * page.file.src_uri.count("/")
    markdown = _OUTSIDE.sub(rf"]({up}\1", markdown)
    return re.sub(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, PAGES))})", rf"]({up}\1", markdown)
