"""What programs that the tests start inherit from this process."""

from __future__ import annotations

import signal

# A run in the background (`nohup make test &`) ignores these, and so would all that it starts.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)
