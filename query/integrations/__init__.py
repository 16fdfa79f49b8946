"""How other tools read warehouses: each file is what one tool looks up by its address.

cursors             connections and cursors, read only, as of DB-API
sqlalchemy_dialect  the dialect `tidemark` of SQLAlchemy
dbt_plugin          a plugin of dbt-duckdb
"""
