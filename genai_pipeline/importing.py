"""Models of other formats into packages that hold: what an import or a pull made is checked before it is kept.

The importers know metadata and graphs; whether a package can run is known above them. So each gives the folder that it
wrote, before that gets its name, to ``validate``'s own check, and a package with errors is gone before anyone saw it:
ImportRefusedError has them all.
"""

from __future__ import annotations

from functools import partial

from genai_pipeline.import_checks import check_made
from genai_pipeline.importers import ctranslate2, genai_config, gguf, optimum, pull, workflow

import_gguf = partial(gguf.import_gguf, check=check_made)
import_ctranslate2 = partial(ctranslate2.import_ctranslate2, check=check_made)
import_genai_config = partial(genai_config.import_genai_config, check=check_made)
import_optimum = partial(optimum.import_optimum, check=check_made)
import_workflow = partial(workflow.import_workflow, check=check_made)
pull_package = partial(pull.pull, check=check_made)
