"""Options of the Java processes that tests start."""

from __future__ import annotations

# These processes end before the second compiler would pay off, and have one or two cores for a small heap:
# together this halves the processor time of a start of Spark. Without the second compiler the code cache
# would be small, and would fill.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
