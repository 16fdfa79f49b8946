"""Who may come into the SQL server: names and passwords from a file, or by a setting of Spark's own server.

Spark's server asks for a password as `hive.server2.authentication` says. LDAP is its own. For a file it is
told to ask a class of ours, which looks into the file at each login. Hive finds that by its name with
whatever class loader a thread has, so it is defined beside the interface that it implements.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidemark.jobs.sql.janino import compiled
from tidemark.warehouse.errors import InputError

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
  /** Makes this class known beside the interface, to whoever looks for it by its name. */
  public void define(byte[] code) throws IllegalAccessException {
    Class beside = PasswdAuthenticationProvider.class;
    MethodHandles.privateLookupIn(beside, MethodHandles.lookup()).defineClass(code);
  }

  public void Authenticate(String user, String password) throws AuthenticationException {
    String kept = "$6$nobody$"; // a name that is not there takes as long
    try {
      String file = System.getProperty("tidemark.users");
      for (Iterator all = Files.readAllLines(Paths.get(file)).iterator(); all.hasNext();) {
        String line = ((String) all.next()).trim();
        if (line.startsWith(user + ":$")) {
          kept = line.substring(user.length() + 1);
        }
      }
    } catch (IOException error) {
      throw new AuthenticationException("the server cannot read its file of users", error);
    }
    byte[] made = Crypt.crypt(password == null ? "" : password, kept).getBytes(StandardCharsets.UTF_8);
    if (!MessageDigest.isEqual(made, kept.getBytes(StandardCharsets.UTF_8))) {
      throw new AuthenticationException("the name or the password is wrong");
    }
  }
}
"""

HASHED = re.compile(r"[^:\s]+:\$[56]\$[^:\s]+")
_SETTING = "hive.server2.authentication"
_ASKS_NOBODY = ("NONE", "NOSASL")


def checked_users(path: str) -> str:
    """The path of a file of users; InputError for a line that is none, with its number."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"--users {path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        if line.strip() and not HASHED.fullmatch(line.strip()):
            raise InputError(
                f"--users {path}, line {number}: expected NAME:HASH with a hash of SHA-512 or SHA-256 crypt. "
                f'Make one with: echo "ann:$(openssl passwd -6)" >> {path}'
            )
    if not any(map(str.strip, lines)):
        raise InputError(f"--users {path} names nobody, so nobody could come in.")
    return str(Path(path).resolve())


def set_authentication(spark: SparkSession, users: str | None) -> bool:
    """Has the server ask for names and passwords; whether it does.

    Hive reads what concerns a login from Java's properties, so that is where Spark's settings
    (spark.hadoop.hive.server2...) are put.
    """
    java: Any = spark.sparkContext._jvm  # noqa: SLF001
    known = spark._jsparkSession.sessionState().newHadoopConf().getPropsWithPrefix("hive.server2.")  # noqa: SLF001
    settings = {f"hive.server2.{name}": value for name, value in dict(known).items()}
    if users and _SETTING in settings:
        raise InputError(f"give --users or the setting spark.hadoop.{_SETTING}, not both.")
    if users:
        settings |= {
            _SETTING: "CUSTOM",
            "hive.server2.custom.authentication.class": _defined(spark),
            "tidemark.users": users,
        }
    for name, value in settings.items():
        java.java.lang.System.setProperty(name, value)
    return settings.get(_SETTING, "NONE").upper() not in _ASKS_NOBODY


def of_this_machine(host: str) -> bool:
    """Whether nobody from outside can reach what listens there."""
    found = socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def _defined(spark: SparkSession) -> str:
    """The name of the class, which Hive finds from now on."""
    name = "org.apache.hive.service.auth.SqlUsers"
    made = compiled(spark, JAVA)
    made.getClassLoader().loadClass(name).newInstance().define(made.getBytecodes().get(name))
    return name
