"""The servers: the questions of `Reader` for programs, dashboards and people (HTTP), and assistants (MCP).

The files of `tidemark serve`, in the order in which a request meets them:

    start           from the arguments of the command to a server that listens
    app             which address answers what
    hosts           which Host and Origin a request may have; its bearer token; the headers of all answers
    tokens          tokens, stored as hashes, with rights by warehouse
    questions       from the parameters of a request to a question; query/sql/calls.py says which there are
    private_questions   what may be asked about private columns
    parameters      descriptions of the parameters, whose names are those of query/sql/calls.py
    schemas         the JSON type of each parameter
    question_queue  a bounded number of questions at the same time, a bounded queue, a time limit for each
    files           the files of a warehouse, for clients that open it by its address here
    responses       answers as JSON documents, and errors with their status
    connections     what a connection may cost before its request is there
    metrics         what Prometheus gets
    pages           the page for people, of the files in page/
    openapi         the description of all addresses: questions from themselves, the others by hand

And those of `tidemark mcp`, which share questions, parameters, schemas, question_queue and responses:

    mcp_tools     the questions as tools, and what an assistant may get
    mcp_server    the tools over stdin and stdout
"""
