"""What every answer can do: be plain values for JSON, lines for a terminal, HTML for a notebook, and a DataFrame."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .report import Table

if TYPE_CHECKING:
    import pandas as pd

_NOTEBOOK = """\
{% for table in tables %}
{% if loop.first %}
<p><b>{{ text.partition("\\n")[0] }}</b></p>
{% endif %}
<table>
<caption style="text-align: left; font-weight: bold; white-space: nowrap">{{ table.caption }}</caption>
<thead><tr>{% for name in table.headers %}<th style="text-align: left">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.rows %}
<tr>{% for cell in row %}<td style="text-align: left">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
{% else %}
<pre>{{ text }}</pre>
{% endfor %}
"""


class Answer:
    """The answer of `simulate`, `sweep`, `search`, `explain` or `compare`.

    `print` shows what the command prints, and a notebook shows it as HTML.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__repr__ = Answer.__repr__  # type: ignore[method-assign]  # that of a dataclass prints whole timelines

    def to_json(self) -> dict[str, Any]:
        """The answer as plain values in SI units; `schema` names their form, `version` the runcast that made them."""
        raise NotImplementedError

    def frame(self) -> "pd.DataFrame":
        """The answer as a DataFrame in SI units, with the unit at the end of a column's name."""
        raise NotImplementedError

    def lines(self) -> Iterable[str]:
        """The lines that the command prints."""
        raise NotImplementedError

    def tables(self) -> Sequence[Table]:
        """The tables that a notebook shows instead of the lines, if there are any."""
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {next(iter(self.lines()), '')}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        from jinja2 import Environment

        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(_NOTEBOOK).render(tables=self.tables(), text=str(self))
