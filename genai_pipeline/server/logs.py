"""The server's log on stderr: one line per event, as JSON for machines or as text for people."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

from genai_pipeline.server.config import LogFormat

LOGGERS: Final = ("genai_pipeline.server", "genai_pipeline.placement", "uvicorn")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time, level, message, and whatever else it was given."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields: dict[str, Any] = {"time": _time(record.created), "level": record.levelname.lower()}
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        fields["message"] = record.getMessage()
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """A record as a line that people read."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with what the record was given besides its message."""
        given = {name: value for name, value in vars(record).items() if name not in _STANDARD and name != "event"}
        more = "".join(f" {name}={value}" for name, value in given.items())
        line = f"{_time(record.created)} {record.levelname.lower()} {record.getMessage()}{more}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(log_format: LogFormat, level: int = logging.INFO) -> None:
    """Send the log to stderr in that format, instead of wherever logs went before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(max(level, logging.WARNING) if name == "uvicorn" else level)


def _time(seconds: float) -> str:
    """Time of a record in UTC, to the millisecond."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
