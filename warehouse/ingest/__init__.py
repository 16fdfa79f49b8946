"""Writing the table `events`: which rows are taken, with which types, once a batch."""
