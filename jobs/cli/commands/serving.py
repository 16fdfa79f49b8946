"""The commands for sites, servers and their clients, secrets and shells."""

from tidemark.jobs.cli.commands.command import Command
from tidemark.jobs.cli.options import serving

SITES_MAP = """\
tidemark sites map -w flights --site 0 --map words:split --combine words:add \\
      --exchange s3://shared/exchange --topic monday --secret secret.key"""
SITES_REDUCE = """\
tidemark sites reduce --sites 3 --reduce words:total \\
      --exchange s3://shared/exchange --topic monday --secret secret.key"""

COMMANDS = (
    Command(
        "sites",
        "map, combine and reduce over the warehouses of several sites",
        """\
Runs functions of your own over warehouses that lie apart: map and combine at each site, reduce where the
answer is wanted. Only what was combined travels, as files of a folder or object store that all can reach.""",
        (SITES_MAP, SITES_REDUCE),
    ),
    Command(
        "sites map",
        "map and combine the rows of a site",
        """\
Maps the rows of the warehouse and combines the values of each key, in Spark's tasks or in this process, then
tells the result to who asks, and ends when it was taken. map gets a pyarrow.RecordBatch and gives pairs (key,
value); combine gets two values of a key and gives one, in any order and nesting. Keys and values are what
JSON has.""",
        (SITES_MAP,),
        serving.SITE_MAP,
        "tidemark.jobs.site_reduce:run_map",
    ),
    Command(
        "sites reduce",
        "reduce what the sites tell",
        """\
Waits for what all sites tell and prints the reduced value of each key. reduce gets a key and the list of its
values, at most one of each site.""",
        (SITES_REDUCE,),
        serving.SITE_REDUCE,
        "tidemark.jobs.site_reduce:run_reduce",
        needs_warehouse=False,
    ),
    Command(
        "sql-server",
        "serve warehouses to JDBC clients",
        """\
Starts Spark's Thrift server for JDBC and ODBC clients, such as beeline and dashboards. Every session has the
functions and views of the warehouses: NAME_quantile, NAME_events ... Prints the JDBC address and serves until
SIGTERM or Ctrl-C. Clients can only query: statements that write, read files by path or call Java are refused.
Clients from other machines need a user name and a password.""",
        (
            "tidemark sql-server -w flights=/data/flights -w clicks=/data/clicks --port 10000",
            "tidemark sql-server -w flights=/data/flights --host 0.0.0.0 --port 10000 --users users",
            "TIDEMARK_WAREHOUSE=/data/flights tidemark sql-server",
        ),
        serving.SQL_SERVER,
        "tidemark.jobs.sql_server:run",
        needs_warehouse=False,
    ),
    Command(
        "serve",
        "serve warehouses over HTTP, for programs and dashboards",
        """\
Answers all questions over HTTP as JSON, read only, until SIGTERM or Ctrl-C. /openapi.json describes the
addresses. Every question needs a token. Without --tokens, a token with all rights is made at start and
printed. Clients from other machines need TLS, by --certificate or by a proxy in front of the server.""",
        (
            "tidemark serve -w flights=/data/flights -w clicks=/data/clicks --port 8080",
            """\
tidemark serve -w flights=/data/flights --tokens tokens --host 0.0.0.0 --port 8443 \\
      --certificate site.crt --private-key site.key --allow-host tidemark.example""",
        ),
        serving.SERVE,
        "tidemark.jobs.serve.start:run",
        needs_warehouse=False,
    ),
    Command(
        "mcp",
        "answer the questions of an assistant, over MCP",
        """\
Answers an assistant that speaks the Model Context Protocol and starts this command, over stdin and stdout,
until stdin ends. The tools are the questions, with typed parameters and without SQL, and `describe`, which
tells the names of measures, keys and columns. Every answer has its bounds. Only the warehouses that are named
here can be asked.""",
        (
            "tidemark mcp -w flights=/data/flights",
            "tidemark mcp -w flights=/data/flights --tool describe --tool quantile --tool top",
        ),
        serving.MCP,
        "tidemark.jobs.serve.start:run_mcp",
        needs_warehouse=False,
    ),
    Command(
        "token",
        "make a token for clients of `tidemark serve`",
        """\
Makes a token, adds a line with its hash and its rights to a file, and prints the token, which is stored
nowhere. To take a token back, delete its line: a running server reads the file again.""",
        (
            "tidemark token grafana --grant flights=aggregates,metrics --tokens tokens",
            "tidemark token ann --grant '*=aggregates,rows,sql,metrics' --tokens tokens",
        ),
        serving.TOKEN,
        "tidemark.jobs.serve.start:run_token",
        needs_warehouse=False,
    ),
    Command(
        "secret",
        "make a secret for private columns, or a token with it, or tell the value of a token",
        """\
`secret new` makes a secret: print it, or write it into a new file. Keep a copy: without it no name can be
asked for. With --after it follows an older one, for `tidemark alter --rotate-secret`. `secret token` reads a
value from the standard input, a line, and prints its token, by the secret in the file that
TIDEMARK_SECRET_FILE names, or in what the command of TIDEMARK_SECRET_COMMAND prints. `secret reveal` reads a
token of a warehouse that was created with --reveal, and prints the value.""",
        (
            "tidemark secret new --to secret",
            "tidemark secret new --after secret --to secrets",
            "echo alice | TIDEMARK_SECRET_FILE=secret tidemark secret token",
        ),
        serving.SECRET,
        "tidemark.jobs.secret:run",
        needs_warehouse=False,
    ),
    Command(
        "completion",
        "print a completion script for bash, zsh or fish",
        "Prints a completion script for the shell, generated from the options of this version.",
        (
            'eval "$(tidemark completion bash)"      # in ~/.bashrc',
            'eval "$(tidemark completion zsh)"       # in ~/.zshrc, below compinit',
            "tidemark completion fish | source       # in ~/.config/fish/config.fish",
        ),
        serving.COMPLETION,
        "tidemark.jobs.cli.completion:run",
        needs_warehouse=False,
    ),
)
