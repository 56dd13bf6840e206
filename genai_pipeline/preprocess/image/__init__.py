"""Steps of image programs. Pillow is imported by ``pillow.py`` alone, when a step first needs it."""
