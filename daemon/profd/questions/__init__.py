"""What may be asked, as data: every side of a question reads `table.QUESTIONS`."""
