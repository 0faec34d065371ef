"""What `ui` gives to other packages; each name is imported when it is first used."""

from .cli.main import main as main
from .html.notebook import register_in_notebook as register_in_notebook
from .html.write import write_html as write_html
