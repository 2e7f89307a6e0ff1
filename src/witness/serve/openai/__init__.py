"""OpenAI's transcription interface."""
