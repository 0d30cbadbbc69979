"""Who works on the rows."""
