"""The servers: the questions of `Reader` for programs, dashboards and people (HTTP), and assistants (MCP).

A request of `tidemark serve` meets start, app, hosts, tokens, questions, question_queue and responses, in
this order. `tidemark mcp` has mcp_server and mcp_tools, and shares the questions and their queue.
"""
