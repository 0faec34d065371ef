"""What `launch` gives to other packages; each name is imported when it is first used."""

from .checks import Checked as Checked
from .checks import check as check
from .checks import expressible_space as expressible_space
from .exports import export as export
from .folder import export_folder as export_folder
from .formats import FORMATS as FORMATS
from .formats import READERS as READERS
from .frameworks.maxtext import RECOMPUTED_BY_POLICY as RECOMPUTED_BY_POLICY
from .frameworks.megatron import SHARDING_STRATEGIES as SHARDING_STRATEGIES
from .frameworks.torchtitan import DEGREE_SETTINGS as DEGREE_SETTINGS
from .frameworks.torchtitan import KNOWN_MODELS as KNOWN_MODELS
from .frameworks.unsupported import UNAMBIGUOUS_SETTINGS as UNAMBIGUOUS_SETTINGS
from .frameworks.unsupported import check_training_kind as check_training_kind
from .reader import Reading as Reading
from .reader import complete_launch as complete_launch
from .reader import read as read
from .settings.canonical import device as device
from .settings.format import Format as Format
from .settings.given import Given as Given
from .settings.settings import is_off as is_off
from .settings.suggestions import DifferingSetting as DifferingSetting
from .settings.table import setting_names as setting_names
from .training_programs import DATA_PARALLEL as DATA_PARALLEL
from .training_programs import TRAINING_PROGRAMS as TRAINING_PROGRAMS
from .training_programs import write_in_full as write_in_full
from .write import Launch as Launch
