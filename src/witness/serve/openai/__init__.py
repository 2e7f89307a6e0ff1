"""OpenAI's transcription interface, apart from its routes."""
