"""The app: studies and live panels in a browser, served only on this machine.

Needs the extra ``visprism[app]``: starlette and uvicorn. Studies run in a process that can be
canceled and resumed; live requests queue for one thread. See docs/app.md.
"""
