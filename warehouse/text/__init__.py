"""The one strict reader of CSV and JSON: loads in this process, Spark's tasks and streams all use it.

A text means one thing, or it is refused with the line, the column and the text. Nothing is rounded, cut or
guessed. By type of column:

    byte ... long     digits with an optional sign, in the range of the type
    float, double     a decimal number. One with a fraction or an exponent becomes the nearest number of the
                      type, a whole number must be held exactly. NaN, Inf and Infinity in upper or lower case
    decimal           a decimal number that fits without losing a digit
    boolean           true or false; in CSV in upper or lower case
    date              2001-03-19
    timestamp         2001-03-19, or 2001-03-19T12:30:00 with a T or a space; the seconds may be left out, and
                      may have a fraction of whole microseconds; an optional zone: Z, +01:00, +0100 or +01;
                      without one it is UTC. In JSON also whole seconds since 1970
    string            any text. In JSON also a number, true or false as it was written, an object or a list
    binary            CSV: any text, as UTF-8. JSON: Base64

CSV follows RFC 4180, and a field without text is NULL. JSON follows RFC 8259: one object a line, each name
once; a column that it lacks is NULL. All text is UTF-8; a file may begin with a byte order mark.
"""
