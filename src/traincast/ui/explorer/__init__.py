"""The explorer: a web page that re-searches the whole space at every change, and the server behind it (`traincast serve`).

A state (`question.py`) says what is asked, in JSON or in the address of the page; `answers.py` makes of it what the page draws, in
worker processes with an end (`worker_pool.py`); `app.py` is what the network sees. The page itself is static (`static/`).
"""
