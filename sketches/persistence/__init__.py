"""Persistent items of distributed streams: items that occur in many slots of time, at whichever site.

    algorithm  what it keeps at each site                                     module
    A          every item and all its slots                                   all_items.py
    B          a sample of the items, and all their slots from then on        sampled_items.py
    SS         a sample of the items, and a sample of their slots             sampled_items.py

All three answer `update(site, digests, slot)` and `persistent(now)`, tell the bytes that they keep and send,
and check themselves. promise.py defines the problem; plans.py has the guarantees and their proofs.

Source: S. A. Singh, "Techniques for online analysis of large distributed data", thesis, Iowa State
University, 2015, chapter 3. Where its algorithms are wrong, plans.py and sampled_items.py tell what and
why.
"""
