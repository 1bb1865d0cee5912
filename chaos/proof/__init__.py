"""P1, P2 and P8 for any number of masters and clients: `exclusive`, `fenced` and `foreign`, in words (`logic`) for a `solver`."""
