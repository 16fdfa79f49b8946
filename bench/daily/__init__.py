"""Part `daily`: what analysts ask in a day, each beside scans by other engines."""
