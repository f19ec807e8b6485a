"""Names that a shell completes: those of shipped files, clusters and forms."""

from collections.abc import Callable, Iterable


def complete(what: str) -> Callable[[str], list[str]]:
    """A completion by what ships of a kind; where nothing begins so, the shell completes file names."""
    return lambda incomplete: [name for name in _names(what) if name.startswith(incomplete)]


def _names(what: str) -> Iterable[str]:
    if what == "catalogues":
        from ..answers.listing import CATALOGUES

        return CATALOGUES
    if what == "forms":
        from ..answers.schema import FORMS

        return FORMS
    if what == "clusters":
        from ..hardware.files import names

        return names("clusters")
    from ..base.shipped import shipped

    return shipped(what)
