"""The handler workers: gunicorn running the user's hooks and the default handler before model servers."""
