"""Reading the table `events`, and the steps, which say which of its batches a load takes."""
