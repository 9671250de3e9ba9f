"""The example Scrapy project; ``scrapy.cfg`` is here, its package one directory further in.

Scrapy puts the directory of ``scrapy.cfg`` on the path, so inside it the package below
is ``example_project``. This file gives it the same name from the directory above, as in
``python -m example_project.site``.
"""

import os

__path__ = [os.path.join(os.path.dirname(__file__), "example_project")]
