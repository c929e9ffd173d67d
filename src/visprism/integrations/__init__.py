"""The monitor in the trainers that people use; each module needs the library of its name."""
