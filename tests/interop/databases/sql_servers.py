"""The database servers that tests run against, as parameters of a fixture `database`."""

from __future__ import annotations

from typing import Final

import pytest
from mariadb_server import MariaDB, needs_mariadb
from mysql_server import MySQL, needs_mysql

MARIADB: Final = pytest.param(MariaDB, id="mariadb", marks=needs_mariadb)
MYSQL: Final = pytest.param(MySQL, id="mysql", marks=needs_mysql)
ONLY_MARIADB: Final = pytest.mark.parametrize("database", [MARIADB], indirect=True)
"""Mark of a test of a feature that MariaDB alone has."""
ONLY_MYSQL: Final = pytest.mark.parametrize("database", [MYSQL], indirect=True)
"""Mark of a test of a feature that MySQL alone has."""
