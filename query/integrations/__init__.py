"""How tools of others read warehouses: each file is what one of them looks for by its address.

cursors             connections and cursors, read only, as of DB-API
sqlalchemy_dialect  the dialect `tidemark` of SQLAlchemy
dbt_plugin          a plugin of dbt-duckdb
"""
