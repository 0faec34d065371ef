"""How results show themselves in notebooks."""

from importlib import import_module


class Shown:
    """A result that has a card in a notebook.

    Cards are made far above the results they show (`traincast.ui.html.notebook_cards`). What makes them is therefore looked up by
    its name when a notebook asks for one, as the package looks up what it offers; nothing imports upward.
    """

    def _repr_html_(self) -> str | None:
        """The card as HTML; None where there is none, so that a notebook shows the text."""
        shown: str | None = import_module("traincast.ui.html.notebook_cards").card(self)
        return shown
