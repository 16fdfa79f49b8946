"""Authentication of the SQL server: user names and passwords from a file, or by a setting of Spark's server.

The setting `hive.server2.authentication` selects how Spark's server authenticates; LDAP is built in. For a
file of users it uses the class `SqlUsers` below, which reads the file at each login. Hive loads that class by
name with the class loader of the current thread, so it is defined in the package and class loader of the
interface that it implements.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidemark.jobs.sql.janino import compile_java
from tidemark.warehouse.errors import InputError

PASSWORD_BYTES = 1024  # the cost of a hash grows with the square of the password's length

JAVA = r"""
package org.apache.hive.service.auth;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.MessageDigest;
import java.util.Iterator;
import javax.security.sasl.AuthenticationException;
import org.apache.commons.codec.digest.Crypt;

public final class SqlUsers implements PasswdAuthenticationProvider {
  /** Defines this class in the class loader of the interface, so that Hive finds it by name. */
  public void define(byte[] code) throws IllegalAccessException {
    Class neighbour = PasswdAuthenticationProvider.class;
    MethodHandles.privateLookupIn(neighbour, MethodHandles.lookup()).defineClass(code);
  }

  public void Authenticate(String user, String password) throws AuthenticationException {
    byte[] secret = (password == null ? "" : password).getBytes(StandardCharsets.UTF_8);
    if (secret.length > PASSWORD_BYTES) {
      throw new AuthenticationException("the password has more than PASSWORD_BYTES bytes");
    }
    String stored = "$6$nobody$"; // an unknown name takes the same time
    try {
      String file = System.getProperty("tidemark.users");
      for (Iterator lines = Files.readAllLines(Paths.get(file)).iterator(); lines.hasNext();) {
        String line = ((String) lines.next()).trim();
        if (line.startsWith(user + ":$")) {
          stored = line.substring(user.length() + 1);
        }
      }
    } catch (IOException error) {
      throw new AuthenticationException("the server cannot read its file of users", error);
    }
    byte[] hash = Crypt.crypt(secret, stored).getBytes(StandardCharsets.UTF_8);
    if (!MessageDigest.isEqual(hash, stored.getBytes(StandardCharsets.UTF_8))) {
      throw new AuthenticationException("the name or the password is wrong");
    }
  }
}
""".replace("PASSWORD_BYTES", str(PASSWORD_BYTES))

_USER_LINE = re.compile(r"[^:\s]+:\$[56]\$[^:\s]+")
_SETTING = "hive.server2.authentication"
_NO_PASSWORD = ("NONE", "NOSASL")


def check_users(path: str) -> str:
    """The absolute path of a file of users; InputError with the number of the first invalid line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"--users {path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        if line.strip() and not _USER_LINE.fullmatch(line.strip()):
            raise InputError(
                f"--users {path}, line {number}: expected NAME:HASH with a hash of SHA-512 or SHA-256 crypt. "
                f'Make one with: echo "ann:$(openssl passwd -6)" >> {path}'
            )
    if not any(map(str.strip, lines)):
        raise InputError(f"--users {path} has no users, so no client could log in. Add a line NAME:HASH.")
    return str(Path(path).resolve())


def set_authentication(spark: SparkSession, users: str | None) -> bool:
    """Sets up authentication by the file `users` or by Spark's settings; returns whether logins need it.

    Hive reads the settings of a login from Java's system properties, so Spark's settings
    (spark.hadoop.hive.server2...) are copied there.
    """
    java: Any = spark.sparkContext._jvm  # noqa: SLF001
    configured = spark._jsparkSession.sessionState().newHadoopConf().getPropsWithPrefix("hive.server2.")  # noqa: SLF001
    settings = {f"hive.server2.{name}": value for name, value in dict(configured).items()}
    if users and _SETTING in settings:
        raise InputError(f"give --users or the setting spark.hadoop.{_SETTING}, not both.")
    if users:
        settings |= {
            _SETTING: "CUSTOM",
            "hive.server2.custom.authentication.class": _define_class(spark),
            "tidemark.users": users,
        }
    for name, value in settings.items():
        java.java.lang.System.setProperty(name, value)
    return settings.get(_SETTING, "NONE").upper() not in _NO_PASSWORD


def _define_class(spark: SparkSession) -> str:
    """Defines the class `SqlUsers` in Java, where Hive finds it; returns its name."""
    name = "org.apache.hive.service.auth.SqlUsers"
    result = compile_java(spark, JAVA)
    result.getClassLoader().loadClass(name).newInstance().define(result.getBytecodes().get(name))
    return name
