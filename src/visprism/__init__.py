"""Take any vision model apart, watch its blocks on real images, and see what each one does."""
