"""The desk: a local web page and an HTTP API over a folder of transcripts. Needs the extra `serve`."""
