"""Names of accelerators in logs, and in the table of runs."""

import re
from typing import Final

NAMES: Final = (  # pattern of a name, accelerator of the table; the first match counts
    (r"GB300", "gb300"),
    (r"GB200", "gb200"),
    (r"GH200", "gh200-96"),
    (r"\bB300", "b300"),
    (r"\bB200", "b200"),
    (r"\bH200", "h200"),
    (r"\bH800", "h800-sxm-80"),
    (r"\bH100(?=.*(?:PCIe|NVL))", "h100-pcie-80"),
    (r"\bH100(?=.*80 ?GB|.*SXM|\s*$)", "h100-sxm-80"),
    (r"\bH100(?=.*96 ?GB|.*HBM2e)", "h100-96-hbm2e-500w"),
    (r"\bA100(?=.*PCIE)(?=.*80 ?GB)", "a100-pcie-80"),
    (r"\bA100(?=.*PCIE)", "a100-pcie-40"),
    (r"\bA100(?=.*80 ?GB)", "a100-sxm-80"),
    (r"\bA100(?=.*40 ?GB)", "a100-sxm-40"),
    (r"\bV100(?=.*32 ?GB)", "v100-sxm-32"),
    (r"MI355X", "mi355x"),
    (r"MI325X", "mi325x"),
    (r"MI300X", "mi300x"),
    (r"MI250X", "mi250x-gcd"),
    (r"Gaudi ?2|HL-225", "gaudi2"),
)
KNOWN: Final = (
    "a100-sxm-80", "a100-sxm-40", "h100-sxm-80", "h200", "h800-sxm-80", "b200", "b300", "gb200", "gb300", "gh200-96", "v100-sxm-32",
    "mi250x-gcd", "mi300x", "mi325x", "mi355x", "gaudi2",
)  # fmt: skip


def accelerator(text: str) -> str | None:
    """Return the accelerator of a name, None if the name is ambiguous or unknown."""
    return next((name for pattern, name in NAMES if re.search(pattern, text, re.IGNORECASE)), None)
