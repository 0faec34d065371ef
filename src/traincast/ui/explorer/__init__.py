"""The explorer: a web page that searches again at every change, and the server behind it (`traincast serve`).

A state (`question.py`) describes a request, as JSON or in the address of the page; `answers.py` computes what
the page draws, in worker processes with a time limit (`worker_pool.py`); `app.py` is the HTTP application.
The page itself is static (`static/`).
"""
