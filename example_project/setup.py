"""What ``scrapyd-deploy`` builds the egg with; the local site's data goes along."""

from setuptools import find_packages, setup

setup(
    name="example_project",
    version="1.0",
    packages=find_packages(),
    package_data={"example_project.site": ["*.txt"]},
    entry_points={"scrapy": ["settings = example_project.settings"]},
)
