"""The parts of `repair`: what is damaged, and how it is made again from `events`."""
