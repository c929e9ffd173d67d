"""What measurements of the loss still read from here."""
