"""Sites and a coordinator that send each other messages, however the messages travel.

An algorithm over sites is a `Machine` at each place: messages in, messages out, no I/O. An `Endpoint` gives
it delivery in order and exactly once, over a carrier that may lose, repeat, reorder, cut or forge. The same
messages travel as files of a folder or an object store: `warehouse/exchange.py`.
"""
