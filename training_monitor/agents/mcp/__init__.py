"""The library for programs that speak the Model Context Protocol: a server on stdin and stdout, and its tools."""
