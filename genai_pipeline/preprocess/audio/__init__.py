"""Steps of audio programs, and sound that is still coming in."""
