"""Sites and a coordinator that send each other messages, however the messages travel.

An algorithm over sites is a `Machine` at each place: messages in, messages out, no I/O. An `Endpoint` gives
it delivery in order and exactly once, over a carrier that may lose, repeat, reorder, cut or forge.

    envelope.py    a message with its addresses and a keyed hash
    endpoint.py    one place: what it numbers, seals and repeats, and what it refuses
    machine.py     what an algorithm is at a place
    channel.py     a carrier for simulations, which counts messages and bytes and does harm on request
    network.py     all places of a simulation
    gather.py      the plainest algorithm: one payload of each site

The same messages travel as files of a folder or an object store: `warehouse/exchange.py`.
"""
