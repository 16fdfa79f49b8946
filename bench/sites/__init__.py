"""Part `sites`: several warehouses asked as one, beside one warehouse with the same rows, and the server."""
