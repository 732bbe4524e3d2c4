"""A fleet in a browser: a small HTTP server, its page, and charts as SVG."""
