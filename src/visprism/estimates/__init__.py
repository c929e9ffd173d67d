"""Estimates: numbers with intervals, declared once, compared image by image."""
