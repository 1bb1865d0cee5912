bind = "127.0.0.1:0"
workers = 2


def post_worker_init(worker):
    from tests.adapters.shop import leading  # noqa: PLC0415 - it needs the settings

    leading.start()
