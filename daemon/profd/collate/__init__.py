"""Many batches in file order to one table in start order, in bounded memory."""
