"""How sketches are stored: a checksummed envelope, and short whole numbers."""
