"""The server of `tidemark serve`: the questions of `Reader` over HTTP, for programs, dashboards and people.

Its files, in the order in which a request meets them:

    start         from the arguments of the command to a server that listens
    app           which address answers what
    doors         who may come in: Host, Origin, bearer token; the headers of all answers
    tokens        tokens, stored as hashes, with rights by warehouse
    questions     from the parameters of a request to a question
    schemas       the JSON type of each parameter
    desk          a bounded number of questions at the same time, a bounded queue, a time limit for each
    told          answers as JSON documents, and errors with their status
    connections   what a connection may cost before its request is there
    metrics       what Prometheus gets
    pages         the page for people, of the files in page/
    openapi       the description of all addresses, made from the questions themselves
"""
